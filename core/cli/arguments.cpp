#include "cli/arguments.h"

#include <boost/program_options.hpp>

#include <charconv>
#include <cmath>

#include "cli/commands.h"

namespace turbo::cli {
namespace {

namespace po = boost::program_options;

const Option* find_option(const Command& command, std::string_view name) {
  for (const Option& option : command.options)
    if (option.name == name) return &option;
  return nullptr;
}

template <typename Number>
std::optional<Number> parse_number(std::string_view text) {
  Number value{};
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// One "--name value" of the command line or "NAME=value" of the environment, in the order it was given.
struct Given {
  std::string name, value, origin;
};

class Parser {
 public:
  Parser(const Command& command, Arguments& arguments) : command_(command), arguments_(arguments) {}

  Status take(const Given& given) {
    if (const Option* option = find_option(command_, given.name)) return take_own(*option, given);
    const profile::Flag* flag = profile::find_flag(given.name);
    if (flag && flag->command) return take_common(given);
    TURBO_ASSIGN(std::vector<profile::Override> settings, profile::flag_to_overrides(given.name, given.value, given.origin));
    for (profile::Override& setting : settings) arguments_.overrides.push_back(std::move(setting));
    return Status::ok();
  }

  bool is_toggle(std::string_view name) const {
    if (const Option* option = find_option(command_, name)) return option->value_name.empty();
    const profile::Flag* flag = profile::find_flag(name);
    return flag && flag->value_name.empty();
  }
  /// The word after `token` is its value.
  bool takes_next(const std::string& token) const {
    return token.starts_with("--") && token.find('=') == std::string::npos && known(token) && !is_toggle(token);
  }
  bool known(std::string_view name) const { return find_option(command_, name) || profile::find_flag(name); }

 private:
  Status take_own(const Option& option, const Given& given) {
    std::vector<std::string>& values = arguments_.options[option.name];
    arguments_.origins[option.name] = given.origin;
    if (!option.repeatable && !values.empty() && given.origin == given.name)
      values.clear();  // the last one counts, as in every shell habit
    if (option.value_name.empty()) {
      TURBO_ASSIGN(const bool on, toggle(given));
      if (on) values = {"true"};
      else arguments_.options.erase(option.name);
    } else {
      values.push_back(given.value);
    }
    return Status::ok();
  }
  Status take_common(const Given& given) {
    if (given.name == "--profile") {
      arguments_.profile = given.value;
      return Status::ok();
    }
    TURBO_ASSIGN(const bool on, toggle(given));
    if (given.name == "--json") arguments_.style.json = on;
    else if (given.name == "--quiet") arguments_.style.quiet = on;
    return Status::ok();
  }
  static Result<bool> toggle(const Given& given) {
    if (given.value.empty() || given.value == "true" || given.value == "1") return true;
    if (given.value == "false" || given.value == "0") return false;
    return error(Code::invalid_argument, "{}: expected no value, true or false but found '{}'", given.origin, given.value);
  }
  const Command& command_;
  Arguments& arguments_;
};

// What the library has no form for is taken out first: toggles with =true or =false, and words that are negative numbers.
std::vector<std::string> expand_tokens(const Command& command, const Parser& parser, const std::vector<std::string>& tokens,
                                       Arguments& arguments, std::vector<Given>& given) {
  std::vector<std::string> rest;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const std::string& token = tokens[i];
    if (token == "--") {
      rest.insert(rest.end(), tokens.begin() + static_cast<long>(i), tokens.end());
      break;
    }
    const size_t equals = token.find('=');
    const bool negative = token.size() > 1 && token[0] == '-' && token[1] >= '0' && token[1] <= '9';
    if (negative && command.max_positional > 0 && (i == 0 || !parser.takes_next(tokens[i - 1])))
      arguments.positional.push_back(token);
    else if (token.starts_with("--") && equals != std::string::npos && parser.is_toggle(token.substr(0, equals)))
      given.push_back({token.substr(0, equals), token.substr(equals + 1), token.substr(0, equals)});
    else
      rest.push_back(token);
  }
  return rest;
}

std::vector<std::string> own_names(const Command& command) {
  std::vector<std::string> names{"--help"};
  for (const Option& option : command.options) names.push_back(option.name);
  return names;
}

Status read_command_line(const Command& command, const std::vector<std::string>& tokens, const Parser& parser,
                         Arguments& arguments, std::vector<Given>& given) {
  po::options_description description;
  auto add = description.add_options();
  add("help,h", "");
  const auto declare = [&](const std::string& name, bool toggle) {
    const std::string bare = name.substr(2);
    if (description.find_nothrow(bare, false)) return;
    if (toggle) add(bare.c_str(), "");
    else add(bare.c_str(), po::value<std::string>(), "");
  };
  for (const Option& option : command.options) declare(option.name, option.value_name.empty());
  for (const profile::Flag& flag : profile::flag_table()) declare(flag.name, flag.value_name.empty());
  add("positional", po::value<std::vector<std::string>>(), "");
  po::positional_options_description positional;
  positional.add("positional", -1);
  try {
    using style = po::command_line_style::style_t;
    const po::parsed_options parsed = po::command_line_parser(expand_tokens(command, parser, tokens, arguments, given))
                                          .options(description)
                                          .positional(positional)
                                          .style(style::allow_long | style::long_allow_adjacent | style::long_allow_next |
                                                 style::allow_short | style::short_allow_next | style::allow_dash_for_short)
                                          .run();
    for (const auto& option : parsed.options) {
      if (option.string_key == "positional") arguments.positional.insert(arguments.positional.end(), option.value.begin(), option.value.end());
      else if (option.string_key == "help") arguments.help = true;
      else given.push_back({"--" + option.string_key, option.value.empty() ? "" : option.value[0], "--" + option.string_key});
    }
  } catch (const po::unknown_option& unknown) {
    std::string name = unknown.get_option_name();
    if (!name.starts_with("-")) name = "--" + name;
    return profile::unknown_flag(name, own_names(command));
  } catch (const po::error& fault) {
    return Status(Code::invalid_argument, fault.what(), "see turbo " + command.name + " --help");
  }
  return Status::ok();
}

}  // namespace

std::string Arguments::text(const std::string& name, std::string fallback) const {
  const auto found = options.find(name);
  return found == options.end() || found->second.empty() ? fallback : found->second.back();
}

const std::string& Arguments::shown(const std::string& name) const {
  const auto found = origins.find(name);
  return found == origins.end() ? name : found->second;
}

std::vector<std::string> Arguments::all(const std::string& name) const {
  const auto found = options.find(name);
  return found == options.end() ? std::vector<std::string>{} : found->second;
}

Result<int64_t> Arguments::integer(const std::string& name, int64_t fallback, int64_t least, int64_t most) const {
  if (!has(name)) return fallback;
  const auto value = parse_number<int64_t>(text(name));
  if (!value || *value < least || *value > most)
    return error(Code::invalid_argument, "{}: expected a whole number from {} to {} but found '{}'", shown(name), least, most, text(name));
  return *value;
}

Result<double> Arguments::real(const std::string& name, double fallback, double least, double most) const {
  if (!has(name)) return fallback;
  const auto value = parse_number<double>(text(name));
  if (!value || !std::isfinite(*value) || *value < least || *value > most)
    return error(Code::invalid_argument, "{}: expected a number from {} to {} but found '{}'", shown(name), least, most, text(name));
  return *value;
}

Result<std::vector<int64_t>> Arguments::integers(const std::string& name, std::vector<int64_t> fallback, int64_t least,
                                                 int64_t most) const {
  if (!has(name)) return fallback;
  std::vector<int64_t> values;
  const std::string list = text(name);
  size_t begin = 0;
  while (begin <= list.size()) {
    const size_t end = std::min(list.find(',', begin), list.size());
    const auto value = parse_number<int64_t>(std::string_view(list).substr(begin, end - begin));
    if (!value || *value < least || *value > most)
      return error(Code::invalid_argument, "{}: expected whole numbers from {} to {} between commas but found '{}'", shown(name), least, most, list);
    values.push_back(*value);
    begin = end + 1;
  }
  return values;
}

Result<Arguments> parse_arguments(const Command& command, const std::vector<std::string>& tokens,
                                  const profile::Environment& environment) {
  Arguments arguments;
  arguments.command = command.name;
  Parser parser(command, arguments);

  // Environment first: the command line outranks it.
  TURBO_ASSIGN(arguments.overrides, profile::environment_overrides(environment));
  for (const profile::Flag& flag : profile::flag_table())
    if (flag.command)
      if (const auto value = environment(profile::environment_name(flag.name)); value && !value->empty())
        TURBO_RETURN_IF_ERROR(parser.take({flag.name, *value, profile::environment_name(flag.name)}));
  for (const Option& option : command.options)
    if (const auto value = environment(profile::environment_name(option.name)); value && !value->empty())
      TURBO_RETURN_IF_ERROR(parser.take({option.name, *value, profile::environment_name(option.name)}));

  std::vector<Given> given;
  TURBO_RETURN_IF_ERROR(read_command_line(command, tokens, parser, arguments, given));
  std::map<std::string, bool> cleared;  // a repeatable option on the command line replaces the environment's
  for (const Given& one : given) {
    if (const Option* option = find_option(command, one.name); option && option->repeatable && !cleared[one.name]) {
      arguments.options.erase(one.name);
      cleared[one.name] = true;
    }
    TURBO_RETURN_IF_ERROR(parser.take(one));
  }
  return arguments;
}

}  // namespace turbo::cli
