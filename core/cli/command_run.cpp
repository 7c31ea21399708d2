// turbo run: one prompt to text, or an interactive chat.
#include <termios.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>

#include "cli/chat.h"
#include "cli/commands.h"
#include "cli/generation.h"
#include "cli/report.h"
#include "cli/request_options.h"
#include "cli/signals.h"
#include "engine/chat_prompt.h"

namespace turbo::cli {
namespace {

// The terminal's settings before line editing changed them.
class TerminalMode {
 public:
  TerminalMode() : known_(tcgetattr(STDIN_FILENO, &mode_) == 0) {}
  void restore() const {
    if (known_) tcsetattr(STDIN_FILENO, TCSANOW, &mode_);
  }

 private:
  termios mode_{};
  bool known_;
};

Result<std::vector<int32_t>> parse_ids(const Arguments& arguments) {
  TURBO_ASSIGN(const std::vector<int64_t> values, arguments.integers("--prompt-ids", {}, 0, INT32_MAX));
  return std::vector<int32_t>(values.begin(), values.end());
}

Status one_of(const Arguments& arguments, const char* a, const char* b) {
  return error(Code::invalid_argument, "{} and {}: give one of them", arguments.shown(a), arguments.shown(b));
}

// `exit_code` is changed where a failure is the model's rather than the command line's.
Result<std::vector<int32_t>> prompt_ids(const Arguments& arguments, const engine::Runtime& runtime, int& exit_code) {
  if (arguments.has("--prompt-ids")) return parse_ids(arguments);
  const auto tokenizer = runtime.tokenizer();
  if (!tokenizer) {
    exit_code = kModel;
    return tokenizer.status();
  }
  std::string text = arguments.text("--prompt");
  if (!arguments.has("--prompt")) {
    TURBO_ASSIGN(text, read_option_file(arguments, "--prompt-file", size_t{64} << 20));
  }
  if (!arguments.has("--chat")) return (*tokenizer)->encode(text);
  const auto chat_template = runtime.chat_template();
  if (!chat_template) {
    if (chat_template.status().code() != Code::not_found) exit_code = kModel;
    return chat_template.status();
  }
  text::ChatInput input;
  input.messages = nlohmann::ordered_json::array();
  if (arguments.has("--system")) input.messages.push_back({{"role", "system"}, {"content", arguments.text("--system")}});
  input.messages.push_back({{"role", "user"}, {"content", text}});
  Result<engine::ChatPrompt> prompt = engine::make_chat_prompt(**chat_template, **tokenizer, std::move(input));
  if (!prompt) {
    // Beyond its limits, or a fault in its text; what a template says with raise_exception() is about the conversation.
    const Status& status = prompt.status();
    if (status.code() == Code::resource_exhausted || status.message().starts_with("chat template: ")) exit_code = kModel;
    return prompt.status();
  }
  return std::move(prompt->ids);
}

void write_out(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

bool is_interactive(const Arguments& arguments) {
  const bool has_prompt = arguments.has("--prompt") || arguments.has("--prompt-file") || arguments.has("--prompt-ids");
  return !has_prompt && isatty(STDIN_FILENO) && !arguments.style.json;
}

// Options that would be dropped in silence.
Status check_combination(const Arguments& arguments) {
  const bool ids = arguments.has("--prompt-ids"), text = arguments.has("--prompt"), file = arguments.has("--prompt-file");
  if (text && file) return one_of(arguments, "--prompt", "--prompt-file");
  if (ids && text) return one_of(arguments, "--prompt-ids", "--prompt");
  if (ids && file) return one_of(arguments, "--prompt-ids", "--prompt-file");
  if (ids && arguments.has("--chat"))
    return error(Code::invalid_argument, "{} and {}: ids are used as they are", arguments.shown("--prompt-ids"), arguments.shown("--chat"));
  if (arguments.has("--system") && !arguments.has("--chat") && !is_interactive(arguments))
    return error(Code::invalid_argument, "{}: a system message needs the chat template", arguments.shown("--system")).with_hint("add --chat");
  return Status::ok();
}

Result<engine::Request> prepare(const Arguments& arguments, const engine::Runtime& runtime, int& exit_code) {
  exit_code = kUsage;
  TURBO_ASSIGN(engine::Request request, make_request(arguments, runtime));
  TURBO_ASSIGN(request.prompt, prompt_ids(arguments, runtime, exit_code));
  const size_t length = request.prompt.size();
  if (length >= runtime.context())
    return error(Code::invalid_argument, "the prompt has {} tokens but the context holds {}", length, runtime.context())
        .with_hint("shorten the prompt or raise --context");
  request.max_tokens = std::min<uint32_t>(request.max_tokens, runtime.context() - static_cast<uint32_t>(length));
  return request;
}

// Ends an answer tidily where there is one; ends the program where nothing would be lost, and when asked twice.
// SIGINT in a chat asks for the end of the answer alone.
class SignalPolicy {
 public:
  SignalPolicy(const Arguments& arguments, Interruption& interruption) : arguments_(arguments), interruption_(interruption) {}

  void operator()(int signal) const {
    const bool chat = is_interactive(arguments_), whole = signal != SIGINT || !chat;
    if (whole) interruption_.leaving = true;
    const bool again = interruption_.asked.exchange(true);
    const std::optional<Generation::Stage> stage = interruption_.current.cancel();
    // A turn of a chat may be long in preparation; one prompt is all prepared when its generation appears.
    const bool waits = stage && (*stage != Generation::Stage::preparing || !chat || !whole);
    if (waits && !again) return;
    terminal_.restore();
    if (arguments_.style.json && !stage) print_error(interrupted(), arguments_.style);
    _exit(kInterrupted);
  }
  static Status interrupted() { return Status(Code::cancelled, "interrupted before there was an answer"); }

 private:
  const Arguments& arguments_;
  Interruption& interruption_;
  const TerminalMode terminal_;
};

// One prompt; its text is streamed, its JSON comes whole at the end, also when it was interrupted.
int run_once(const Arguments& arguments, engine::Runtime& runtime, Interruption& interruption) {
  int exit_code = kUsage;
  Result<engine::Request> request = prepare(arguments, runtime, exit_code);
  if (!request) return fail(request.status(), arguments, exit_code);
  const std::vector<int32_t> prompt = request->prompt;
  const text::Tokenizer* tokenizer = runtime.tokenizer() ? *runtime.tokenizer() : nullptr;
  const auto generation = std::make_shared<Generation>(runtime.engine(), tokenizer, arguments.all("--stop"));
  interruption.current.set(generation);  // and stays: a signal during the report lets it end
  const Result<Generated> generated = generation->run(std::move(*request), arguments.style.json ? Generation::OnText{} : write_out);
  if (!generated && interruption.asked)
    return arguments.style.json ? fail(SignalPolicy::interrupted(), arguments, kInterrupted) : int{kInterrupted};
  if (!generated) return fail(generated.status(), arguments, generated.status().code() == Code::invalid_argument ? kUsage : kFailed);
  const engine::FinishReason reason = generated->finish.reason;
  if (reason == engine::FinishReason::failed) return fail(generated->finish.status, arguments);
  const int code = reason == engine::FinishReason::cancelled ? kInterrupted : kOk;
  if (arguments.style.json) {
    print_json(run_report(runtime, prompt, *generated));
    return code;
  }
  if (!tokenizer) write_out(fmt::format("{}", fmt::join(generated->ids, ",")));
  write_out("\n");
  if (!arguments.style.quiet) print_run_summary(*generated);
  return code;
}

}  // namespace

int run_run(const Arguments& arguments) {
  int exit_code = kOk;
  if (const Status status = check_combination(arguments); !status.is_ok()) return fail(status, arguments, kUsage);
  std::optional<profile::Profile> profile = load_profile(arguments, exit_code);
  if (!profile) return exit_code;
  profile->engine.max_running = 1;  // one conversation: the whole pool is its own
  // The watch must exist before other threads do, so that all of them have the signals blocked.
  Interruption interruption;
  const SignalPolicy policy(arguments, interruption);
  SignalWatch watch([&](int signal, int) { policy(signal); });
  const std::unique_ptr<engine::Runtime> runtime = load_runtime(*profile, arguments, exit_code);
  if (!runtime) return exit_code;
  return is_interactive(arguments) ? run_chat(arguments, *runtime, interruption) : run_once(arguments, *runtime, interruption);
}

}  // namespace turbo::cli
