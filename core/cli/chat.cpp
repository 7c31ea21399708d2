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
    TURBO_ASSIGN(engine::Request request, make_request(arguments_, runtime_));
    messages_.push_back({{"role", "user"}, {"content", line}});
    Result<std::vector<int32_t>> ids = prompt(line);
    if (!ids) {
      messages_.erase(messages_.size() - 1);
      return ids.status();
    }
    if (ids->size() >= runtime_.context()) {
      messages_.erase(messages_.size() - 1);
      return error(Code::resource_exhausted, "the conversation has {} tokens but the context holds {}", ids->size(), runtime_.context())
          .with_hint("/reset starts a new one");
    }
    request.prompt = std::move(*ids);
    request.max_tokens = std::min<uint32_t>(request.max_tokens, runtime_.context() - static_cast<uint32_t>(request.prompt.size()));
    Generation generation(runtime_.engine(), &tokenizer_, arguments_.all("--stop"));
    current.set(&generation);
    Result<Generated> generated = generation.run(std::move(request), [](const std::string& text) {
      std::fwrite(text.data(), 1, text.size(), stdout);
      std::fflush(stdout);
    });
    current.set(nullptr);
    std::fputs("\n", stdout);
    TURBO_RETURN_IF_ERROR(generated.status());
    TURBO_RETURN_IF_ERROR(generated->finish.status);
    messages_.push_back({{"role", "assistant"}, {"content", generated->text}});
    if (!arguments_.style.quiet) print_run_summary(*generated);
    return Status::ok();
  }

 private:
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

int run_chat(const Arguments& arguments, engine::Runtime& runtime, CurrentGeneration& current, std::atomic<bool>& interrupted) {
  const auto tokenizer = runtime.tokenizer();
  if (!tokenizer) return fail(tokenizer.status(), arguments);
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
    interrupted = false;
    if (line == "/exit" || line == "/quit") break;
    if (line == "/help") {
      fmt::print("/reset   forget the conversation\n/system TEXT   start over with this system message\n/exit    leave\nCtrl-C   stop an answer\n");
    } else if (line == "/reset") {
      chat.reset();
    } else if (line.starts_with("/system ")) {
      chat.set_system(line.substr(8));
    } else if (line.starts_with("/")) {
      print_note("unknown command '{}'; /help lists them\n", line);
    } else if (const Status status = chat.answer(line, current); !status.is_ok() && !interrupted) {
      print_error(status, arguments.style);
    }
  }
  print_note("\n");
  return kOk;
}

}  // namespace turbo::cli
