// turbo run: one prompt to text, or an interactive chat.
#include <termios.h>
#include <unistd.h>

#include <atomic>
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

Result<std::string> prompt_text(const Arguments& arguments) {
  if (arguments.has("--prompt") && arguments.has("--prompt-file"))
    return Status(Code::invalid_argument, "--prompt and --prompt-file: give one of them");
  if (arguments.has("--prompt")) return arguments.text("--prompt");
  return read_text(arguments.text("--prompt-file", "-"), size_t{64} << 20);
}

Result<std::vector<int32_t>> prompt_ids(const Arguments& arguments, const engine::Runtime& runtime) {
  if (arguments.has("--prompt-ids")) return parse_ids(arguments);
  TURBO_ASSIGN(const text::Tokenizer* tokenizer, runtime.tokenizer());
  TURBO_ASSIGN(const std::string text, prompt_text(arguments));
  if (!arguments.has("--chat")) return tokenizer->encode(text);
  TURBO_ASSIGN(const text::ChatTemplate* chat_template, runtime.chat_template());
  text::ChatInput input;
  input.messages = nlohmann::ordered_json::array();
  if (arguments.has("--system")) input.messages.push_back({{"role", "system"}, {"content", arguments.text("--system")}});
  input.messages.push_back({{"role", "user"}, {"content", text}});
  TURBO_ASSIGN(engine::ChatPrompt prompt, engine::make_chat_prompt(*chat_template, *tokenizer, std::move(input)));
  return std::move(prompt.ids);
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
  const bool ids = arguments.has("--prompt-ids");
  if (ids && (arguments.has("--prompt") || arguments.has("--prompt-file")))
    return Status(Code::invalid_argument, "--prompt-ids and a text prompt: give one of them");
  if (ids && arguments.has("--chat")) return Status(Code::invalid_argument, "--prompt-ids and --chat: ids are used as they are");
  if (arguments.has("--system") && !arguments.has("--chat") && !is_interactive(arguments))
    return Status(Code::invalid_argument, "--system: a system message needs the chat template", "add --chat");
  return Status::ok();
}

Result<Generated> generate(const Arguments& arguments, engine::Runtime& runtime, Generation& generation, std::vector<int32_t>& ids) {
  TURBO_ASSIGN(engine::Request request, make_request(arguments, runtime));
  TURBO_ASSIGN(ids, prompt_ids(arguments, runtime));
  if (ids.size() >= runtime.context())
    return error(Code::invalid_argument, "the prompt has {} tokens but the context holds {}", ids.size(), runtime.context())
        .with_hint("shorten the prompt or raise --context");
  request.prompt = ids;
  request.max_tokens = std::min<uint32_t>(request.max_tokens, runtime.context() - static_cast<uint32_t>(ids.size()));
  return generation.run(std::move(request), arguments.style.json ? Generation::OnText{} : write_out);
}

}  // namespace

int run_run(const Arguments& arguments) {
  int exit_code = kOk;
  if (const Status status = check_combination(arguments); !status.is_ok()) return fail(status, arguments, kUsage);
  std::optional<profile::Profile> profile = load_profile(arguments, exit_code);
  if (!profile) return exit_code;
  profile->engine.max_running = 1;  // one conversation: the whole pool is its own
  // The watch must exist before other threads do, so that all of them have the signals blocked.
  CurrentGeneration current;
  std::atomic<bool> interrupted{false};
  const TerminalMode terminal;
  SignalWatch watch([&](int) {
    const bool again = interrupted.exchange(true);
    if (current.cancel() && !again) return;
    // Nothing to end tidily (loading, waiting for input), or asked twice.
    terminal.restore();
    _exit(kInterrupted);
  });
  std::unique_ptr<engine::Runtime> runtime = load_runtime(*profile, arguments, exit_code);
  if (!runtime) return exit_code;
  if (interrupted) return kInterrupted;
  if (is_interactive(arguments)) return run_chat(arguments, *runtime, current, interrupted);

  const text::Tokenizer* tokenizer = runtime->tokenizer() ? *runtime->tokenizer() : nullptr;
  Generation generation(runtime->engine(), tokenizer, arguments.all("--stop"));
  current.set(&generation);
  std::vector<int32_t> ids;
  Result<Generated> generated = generate(arguments, *runtime, generation, ids);
  current.set(nullptr);
  if (interrupted) return kInterrupted;
  if (!generated) return fail(generated.status(), arguments, generated.status().code() == Code::invalid_argument ? kUsage : kFailed);
  if (generated->finish.reason == engine::FinishReason::failed) return fail(generated->finish.status, arguments);
  if (arguments.style.json) {
    print_json(run_report(*runtime, ids, *generated));
    return kOk;
  }
  if (!tokenizer) write_out(fmt::format("{}", fmt::join(generated->ids, ",")));
  write_out("\n");
  if (!arguments.style.quiet) print_run_summary(*generated);
  return kOk;
}

}  // namespace turbo::cli
