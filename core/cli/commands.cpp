#include "cli/commands.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <clocale>
#include <csignal>
#include <iostream>
#include <iterator>

#include "base/log.h"
#include "base/nearest.h"
#include "cli/signals.h"
#include "turbo/kernel/cpu_isa.hpp"

namespace turbo::cli {
namespace {

const std::vector<Option>& generation_options() {
  static const std::vector<Option> options{
      {"--prompt", "S", "text to go on from"},
      {"--prompt-file", "F", "the prompt from a file"},
      {"--prompt-ids", "1,2,3", "the prompt as token ids (needs no tokenizer)"},
      {"--system", "S", "system message (with --chat)"},
      {"--chat", "", "apply the model's chat template"},
      {"--max-tokens", "N", "most tokens to generate (default 256)"},
      {"--temperature", "X", "0 = always the likeliest token"},
      {"--top-k", "N", "sample among the N likeliest"},
      {"--top-p", "X", "sample among the likeliest that hold this share"},
      {"--min-p", "X", "drop tokens below this share of the likeliest"},
      {"--repetition-penalty", "X", "make tokens that occurred less likely (1 = off)"},
      {"--seed", "N", "same seed, same text"},
      {"--stop", "S", "stop before this text", true},
      {"--ignore-eos", "", "go on past end tokens"},
  };
  return options;
}

}  // namespace

std::span<const Command> commands() {
  static const std::vector<Command> table{
      {"serve", "", "serve the OpenAI-compatible HTTP API", {}, run_serve, 0, true},
      {"run", "", "one prompt to text, or an interactive chat", generation_options(), run_run, 0, true},
      {"bench", "", "prefill and decode speed, speculation statistics, memory",
       {{"--prompt-tokens", "N[,N]", "prompt lengths to time (default 512)"},
        {"--gen-tokens", "N", "tokens to generate (default 128)"},
        {"--depth", "N[,N]", "tokens already in the cache (default 0)"},
        {"--batch", "N[,N]", "rows in one step (default 1)"},
        {"--concurrency", "N[,N]", "requests at once (default none)"},
        {"--verify", "N[,N]", "rows of one request in one step, as a draft is verified; 1 is added (default none)"},
        {"--temperature", "X", "how tokens are drawn; 0 = always the likeliest (default 0)"},
        {"--top-k", "N", "sample among the N likeliest (default all)"},
        {"--top-p", "X", "sample among the likeliest that hold this share (default 1)"},
        {"--roofline", "", "measure the machine first and print what it allows"},
        {"--reps", "N", "repetitions after one warm-up (default 5)"},
        {"--prompt-file", "F", "real text for the prompts"},
        {"--csv", "F", "write the results as CSV"},
        {"--plot", "F.svg", "draw the results"}},
       run_bench},
      {"perplexity", "", "perplexity of a text file",
       {{"--file", "F", "the text"},
        {"--window", "N", "tokens of a window (default 512)"},
        {"--count", "half|all", "score the second half of each window, or all of it (default half)"},
        {"--max-tokens", "N", "use only the first N tokens of the text"},
        {"--against", "CODEC", "add KL and same-top share against another KV codec"}},
       run_perplexity},
      {"tokenize", "", "ids of a text",
       {{"--text", "S", "the text"},
        {"--file", "F", "the text from a file (default: stdin)"},
        {"--no-special", "", "special-token spellings are plain text"},
        {"--no-bos", "", "no begin token"}},
       run_tokenize},
      {"detokenize", "[ID ...]", "text of ids, from the arguments or stdin", {}, run_detokenize, SIZE_MAX},
      {"plan", "", "which plugin serves each slot, and why the others lost; loads no weights", {}, run_plan},
      {"plugins", "list|explain [ID]", "installed plugins", {}, run_plugins, 2},
      {"inspect", "FILE", "header facts of a model file and the memory it will need",
       {{"--check-weights", "", "look for weights that are not finite numbers"}},
       run_inspect, 1},
      {"doctor", "[--report [FILE]]", "devices, instruction sets, plugins that fail to load, and what to do",
       {{"--report", "", "all about the hip tier on this machine, in FILE or on stdout, to be sent with a question; JSON for *.json and --json"}},
       run_doctor, 1},
  };
  return table;
}

const Command* find_command(const std::string& name) {
  for (const Command& command : commands())
    if (command.name == name) return &command;
  return nullptr;
}

int exit_code_of(const Status& status, engine::LoadStage stage) {
  const bool asked_wrong = status.code() == Code::invalid_argument || status.code() == Code::not_found;
  switch (stage) {
    case engine::LoadStage::settings: return asked_wrong || status.code() == Code::unsupported ? kUsage : kFailed;
    case engine::LoadStage::model: return kModel;
    case engine::LoadStage::plugins:
      if (status.code() == Code::unsupported) return kNoTier;
      return asked_wrong ? kUsage : kFailed;
    case engine::LoadStage::weights: return status.code() == Code::corrupt_input ? kModel : kFailed;
    case engine::LoadStage::engine: return kFailed;
  }
  return kFailed;
}

int fail(const Status& status, const Arguments& arguments, int exit_code) {
  print_error(status, arguments.style);
  return exit_code;
}

std::filesystem::path executable_path() {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/exe", ignored);
}

Result<std::string> read_text(const std::string& path, size_t limit) {
  if (path != "-") {
    Result<std::string> text = profile::read_regular_file(path, limit);
    if (!text) return text.status().with_hint("give a regular, readable file, or - for stdin");
    return text;
  }
  std::string text;
  char buffer[1 << 16];
  while (std::cin.read(buffer, sizeof buffer) || std::cin.gcount() > 0) {
    text.append(buffer, static_cast<size_t>(std::cin.gcount()));
    if (text.size() > limit) return error(Code::resource_exhausted, "stdin: more than {} bytes", limit);
  }
  return text;
}

Result<std::string> read_option_file(const Arguments& arguments, const std::string& option, size_t limit) {
  Result<std::string> text = read_text(arguments.text(option, "-"), limit);
  if (!text && arguments.has(option)) return text.status().with_context(arguments.shown(option));
  return text;
}

namespace {

// Variables that plugins read, where a value is wrong on every machine; doctor shows them as they are.
Status check_variables() {
  const std::optional<std::string> isa = profile::process_environment()("TURBO_CPU_ISA");
  if (!isa || isa->empty()) return Status::ok();
  std::vector<std::string> names;
  for (const CpuIsa known : {CpuIsa::scalar, CpuIsa::avx2, CpuIsa::avx512}) names.push_back(cpu_isa_name(known));
  if (std::find(names.begin(), names.end(), *isa) != names.end()) return Status::ok();
  const std::string near = nearest_name(*isa, names);
  return error(Code::invalid_argument, "TURBO_CPU_ISA: expected {} but found '{}'", fmt::join(names, ", "), *isa)
      .with_hint(near.empty() ? "unset TURBO_CPU_ISA" : "did you mean '" + near + "'?");
}

}  // namespace

std::optional<profile::Profile> load_profile(const Arguments& arguments, int& exit_code) {
  if (const Status status = check_variables(); !status.is_ok() && arguments.command != "doctor") {
    exit_code = fail(status, arguments, kUsage);
    return std::nullopt;
  }
  const profile::SearchPaths search = profile::standard_search_paths(executable_path());
  Result<profile::Profile> profile = profile::load_profile(arguments.profile, arguments.overrides, search);
  if (!profile) {
    exit_code = fail(profile.status(), arguments, kUsage);
    return std::nullopt;
  }
  std::string level = profile->log.level;
  spdlog::set_level(spdlog::level::from_str(level == "warning" ? "warn" : level));
  set_log_format(profile->log.format == "json" ? LogFormat::json : LogFormat::text);
  if (!arguments.style.quiet)
    for (const std::string& note : profile->adjustments) spdlog::warn("{}", note);
  return std::move(*profile);
}

std::unique_ptr<engine::Runtime> load_runtime(const profile::Profile& profile, const Arguments& arguments, int& exit_code) {
  Progress bar("loading", arguments.style);
  engine::LoadStage stage = engine::LoadStage::model;
  Result<std::unique_ptr<engine::Runtime>> runtime =
      engine::Runtime::load(profile, [&](const char*, double fraction) { bar.update(fraction); }, &stage);
  if (runtime) return std::move(*runtime);
  exit_code = fail(runtime.status(), arguments, exit_code_of(runtime.status(), stage));
  return nullptr;
}

namespace {

void print_flags(profile::FlagGroup group) {
  for (const profile::Flag& flag : profile::flag_table()) {
    if (flag.group != group) continue;
    fmt::print("  {:<34} {}\n", flag.name + (flag.value_name.empty() ? "" : " " + flag.value_name), flag.help);
  }
}

int print_help() {
  fmt::print("turbo: fast, exact inference of 1-bit language models\n\n"
             "usage: turbo [COMMAND] [OPTIONS]       (no command: serve)\n\ncommands:\n");
  for (const Command& command : commands()) fmt::print("  {:<12} {}\n", command.name, command.summary);
  fmt::print("\n  turbo COMMAND --help     options of a command\n"
             "  turbo help flags         options that command lines of other engines use\n\n"
             "options for all commands (each has an environment twin: --kv-codec is TURBO_KV_CODEC):\n");
  print_flags(profile::FlagGroup::shared);
  return kOk;
}

int print_command_help(const Command& command) {
  fmt::print("usage: turbo {} {}[OPTIONS]\n\n{}\n", command.name, command.usage.empty() ? "" : command.usage + " ", command.summary);
  if (!command.options.empty()) fmt::print("\noptions:\n");
  for (const Option& option : command.options)
    fmt::print("  {:<34} {}\n", option.name + (option.value_name.empty() ? "" : " " + option.value_name), option.help);
  fmt::print("\noptions for all commands:\n");
  print_flags(profile::FlagGroup::shared);
  return kOk;
}

int unknown_command(const std::string& name, const OutputStyle& style) {
  std::vector<std::string> names;
  for (const Command& command : commands()) names.push_back(command.name);
  const std::string near = nearest_name(name, names);
  print_error(Status(Code::invalid_argument, "unknown command '" + name + "'",
                     near.empty() ? "turbo --help lists the commands" : "did you mean '" + near + "'?"), style);
  return kUsage;
}

// The form of errors about a command line that could not be read.
OutputStyle style_of(const std::vector<std::string>& tokens) {
  const auto wanted = [](const std::string& value) { return value.empty() || value == "true" || value == "1"; };
  const std::optional<std::string> variable = profile::process_environment()(profile::environment_name("--json"));
  OutputStyle style{.json = variable && !variable->empty() && wanted(*variable)};
  for (const std::string& token : tokens) {
    if (token == "--json") style.json = true;
    else if (token.starts_with("--json=")) style.json = wanted(token.substr(7));
  }
  return style;
}

// turbo help [COMMAND | flags]
int run_help(std::vector<std::string> words, const OutputStyle& style) {
  std::erase_if(words, [](const std::string& word) { return word == "--json" || word.starts_with("--json=") || word == "--quiet"; });
  if (words.size() > 1) {
    print_error(Status(Code::invalid_argument, "turbo help: unexpected argument '" + words[1] + "'", "name one command, or flags"), style);
    return kUsage;
  }
  if (words.empty()) return print_help();
  if (words[0] == "flags") return print_flags(profile::FlagGroup::compatible), kOk;
  const Command* command = find_command(words[0]);
  return command ? print_command_help(*command) : unknown_command(words[0], style);
}

int run_words(std::vector<std::string> tokens) {
  const OutputStyle style = style_of(tokens);
  std::string name = "serve";
  if (!tokens.empty() && (tokens[0] == "--help" || tokens[0] == "-h" || tokens[0] == "--version" || !tokens[0].starts_with("-"))) {
    name = tokens[0];
    tokens.erase(tokens.begin());
  }
  if (name == "help" || name == "--help" || name == "-h") return run_help(std::move(tokens), style);
  if (name == "--version") {
    if (!tokens.empty()) {
      print_error(Status(Code::invalid_argument, "--version: unexpected argument '" + tokens[0] + "'"), style);
      return kUsage;
    }
    fmt::print("turbo {} (ABI {}.{})\n", TURBO_VERSION, TURBO_ABI_MAJOR, TURBO_ABI_MINOR);
    return kOk;
  }
  const Command* command = find_command(name);
  if (!command) return unknown_command(name, style);
  const Result<Arguments> arguments = parse_arguments(*command, tokens, profile::process_environment());
  if (!arguments) {
    print_error(arguments.status(), style);
    return kUsage;
  }
  if (arguments->help) return print_command_help(*command);
  if (arguments->positional.size() > command->max_positional) {
    const std::string& word = arguments->positional[command->max_positional];
    return fail(Status(Code::invalid_argument, "turbo " + name + ": unexpected argument '" + word + "'",
                       name == "run" ? "give the text with --prompt" : "turbo " + name + " --help"), *arguments, kUsage);
  }
  std::optional<EndOnSignal> end;
  if (!command->own_signals) end.emplace(arguments->style);
  return command->run(*arguments);
}

}  // namespace

int run_command_line(int argc, char** argv) {
  // Logs go to stderr: stdout carries results.
  spdlog::set_default_logger(spdlog::stderr_logger_mt("turbo"));
  set_log_format(LogFormat::text);
  std::signal(SIGPIPE, SIG_IGN);  // a reader that left and a file over its limit are errors of the write, not the end
  std::signal(SIGXFSZ, SIG_IGN);

  const std::vector<std::string> tokens(argv + std::min(argc, 1), argv + argc);
  const auto failed = [&](const Status& status) {
    print_error(status, style_of(tokens));
    return kFailed;
  };
  try {
    const int code = run_words(tokens);
    if (code == kOk && (std::fflush(stdout) != 0 || std::ferror(stdout)))
      return failed(Status(Code::internal, "stdout: the result could not be written", "check the disk or the reading program"));
    return code;
  } catch (const std::bad_alloc&) {
    return failed(Status(Code::resource_exhausted, "out of memory"));
  } catch (const std::exception& fault) {
    return failed(Status(Code::internal, fault.what()));
  }
}

}  // namespace turbo::cli
