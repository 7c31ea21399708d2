#include "cli/chat.h"

#include <editline/readline.h>

#include <clocale>
#include <cstdio>
#include <cstdlib>

#include "cli/commands.h"
#include "cli/report.h"
#include "cli/request_options.h"
#include "engine/chat_prompt.h"

namespace turbo::cli {
namespace {

using Json = nlohmann::ordered_json;

// One conversation. A model without a chat template goes on from plain text instead.
class Chat {
 public:
  Chat(const Arguments& arguments, engine::Runtime& runtime, const text::Tokenizer& tokenizer)
      : arguments_(arguments), runtime_(runtime), tokenizer_(tokenizer) {
    reset();
  }

  void reset() {
    messages_ = Json::array();
    if (arguments_.has("--system")) messages_.push_back({{"role", "system"}, {"content", arguments_.text("--system")}});
  }
  void set_system(const std::string& text) {
    messages_ = Json::array({{{"role", "system"}, {"content", text}}});
  }

  Status answer(const std::string& line, CurrentGeneration& current) {
    messages_.push_back({{"role", "user"}, {"content", line}});
    const auto generation = std::make_shared<Generation>(runtime_.engine(), &tokenizer_, arguments_.all("--stop"));
    current.set(generation);
    Result<Generated> generated = generate(line, *generation);
    current.set(nullptr);
    if (generated && !generated->finish.status) generated = generated->finish.status;
    if (!generated) {  // a question without an answer would confuse the next one
      messages_.erase(messages_.size() - 1);
      return generated.status();
    }
    messages_.push_back({{"role", "assistant"}, {"content", generated->text}});
    if (!arguments_.style.quiet) print_run_summary(*generated);
    return Status::ok();
  }

 private:
  Result<Generated> generate(const std::string& line, Generation& generation) {
    TURBO_ASSIGN(engine::Request request, make_request(arguments_, runtime_));
    TURBO_ASSIGN(request.prompt, prompt(line));
    const size_t length = request.prompt.size();
    if (length >= runtime_.context())
      return error(Code::resource_exhausted, "the conversation has {} tokens but the context holds {}", length, runtime_.context())
          .with_hint("/reset starts a new one");
    request.max_tokens = std::min<uint32_t>(request.max_tokens, runtime_.context() - static_cast<uint32_t>(length));
    Result<Generated> generated = generation.run(std::move(request), [](const std::string& text) {
      std::fwrite(text.data(), 1, text.size(), stdout);
      std::fflush(stdout);
    });
    std::fputs("\n", stdout);
    return generated;
  }
  Result<std::vector<int32_t>> prompt(const std::string& line) {
    const auto chat_template = runtime_.chat_template();
    if (!chat_template) return tokenizer_.encode(line);
    text::ChatInput input;
    input.messages = messages_;
    TURBO_ASSIGN(engine::ChatPrompt made, engine::make_chat_prompt(**chat_template, tokenizer_, std::move(input)));
    return std::move(made.ids);
  }
  const Arguments& arguments_;
  engine::Runtime& runtime_;
  const text::Tokenizer& tokenizer_;
  Json messages_;
};

}  // namespace

int run_chat(const Arguments& arguments, engine::Runtime& runtime, Interruption& interruption) {
  const auto tokenizer = runtime.tokenizer();
  if (!tokenizer) return fail(tokenizer.status(), arguments, kModel);
  if (!arguments.style.quiet)
    print_note("{} · context {} · /help for commands, Ctrl-D to leave\n", runtime.model_name(), runtime.context());
  Chat chat(arguments, runtime, **tokenizer);
  // Line editing reads characters by the locale; without one that knows UTF-8 it drops everything beyond ASCII.
  if (!std::setlocale(LC_CTYPE, "") || MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");
  rl_initialize();
  while (char* raw = readline("> ")) {
    const std::string line = raw;
    std::free(raw);
    if (line.empty()) continue;
    add_history(line.c_str());
    interruption.asked = false;
    if (line == "/exit" || line == "/quit") break;
    if (line == "/help") {
      fmt::print("/reset   forget the conversation\n/system TEXT   start over with this system message\n/exit    leave\nCtrl-C   stop an answer\n");
    } else if (line == "/reset") {
      chat.reset();
    } else if (line == "/system" || line.starts_with("/system ")) {
      const size_t text = line.find_first_not_of(" \t", 7);
      if (text == std::string::npos) print_note("/system: the message is missing; give it after the word, or /reset to start over\n");
      else chat.set_system(line.substr(text));
    } else if (line.starts_with("/")) {
      print_note("unknown command '{}'; /help lists them\n", line);
    } else if (const Status status = chat.answer(line, interruption.current); !status.is_ok() && !interruption.asked) {
      print_error(status, arguments.style);
    }
    if (interruption.leaving) return kInterrupted;
  }
  print_note("\n");
  return kOk;
}

}  // namespace turbo::cli
