// The one table of profile keys: path, type, range, where the value lives, and the sentence that documents it.
//
// Parsing, overrides, to_json, the JSON Schema and the reference page all walk this table; a new setting is one field
// in profile.h and one row in keys.cpp. The second table lists the drafter options that command-line flags and the
// short form `drafter: { ghosts: 4 }` know by name; plugins check their own options again when they load.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/status.h"
#include "profile/profile.h"

namespace turbo::profile {

/// A typed value on its way between text and a field. monostate = not set.
using Value = std::variant<std::monostate, bool, int64_t, double, std::string, std::vector<std::string>,
                           std::map<std::string, std::string>>;

enum class KeyKind { boolean, integer, number, text, choice, bytes, duration_ms, path, text_list, path_list, text_map };

/// What a value may be. Shared by profile keys and drafter options.
struct ValueRule {
  KeyKind kind = KeyKind::text;
  double minimum = 0, maximum = 0;   // inclusive; for integer, number, bytes, duration_ms
  bool above_minimum = false;        // the minimum itself is excluded
  std::vector<std::string> choices;  // for choice, and for the items of a text_list
  std::string zero_word;             // word for 0, which may lie below `minimum`: "auto"; of bytes and durations 0 itself will do
  bool optional = false;             // null, or the text "null" in an override, unsets it
  bool environment = false;          // ${NAME} is replaced by the environment variable
};

struct KeySpec {
  std::string path;  // "server.port"
  ValueRule rule;
  void (*set)(Profile&, const Value&);
  Value (*get)(const Profile&);  // monostate when unset; null pointer for a key that only writes (kv.codec)
  bool secret = false;           // shown as "***"
  std::string doc;               // one or two sentences, with the unit
};

std::span<const KeySpec> key_table();

/// The row of a key, or null. Entries of a map key ("kv.options.sinks") are not keys; see find_map_key.
const KeySpec* find_key(std::string_view path);

/// The map key that `path` is an entry of ("kv.options" for "kv.options.sinks"), or null. `entry` gets the rest.
const KeySpec* find_map_key(std::string_view path, std::string& entry);

/// Whether `path` is the parent of keys: "server".
bool is_section(std::string_view path);

/// Names directly under a section ("" = top level), in table order; sections are included.
std::vector<std::string> names_under(std::string_view section);

/// Top-level sections and keys with a sentence each, for the reference page.
struct SectionDoc {
  std::string name;
  std::string doc;
};
std::span<const SectionDoc> section_table();

struct DrafterOption {
  std::string name;                   // under drafter.options
  std::vector<std::string> drafters;  // which drafters take it
  ValueRule rule;
  std::string doc;
};

std::span<const DrafterOption> drafter_options();
const DrafterOption* find_drafter_option(std::string_view name);

/// What is known about drafters before any plugin is looked at. Other names are allowed and not checked here.
struct DrafterFacts {
  std::string name;
  bool needs_model = false;   // drafter.model is required
  bool takes_steps = false;   // shaped by drafter.steps and drafter.topk
  bool whole_model = false;   // drafter.model is a model of its own, opened with the target's
  bool first_layers = false;  // drafts with the first layers of the target, options.layers of them
  bool composes = false;      // works over others: drafter.over is required
};

std::span<const DrafterFacts> known_drafters();
/// The drafters at work have the weights that they cannot do without. Not part of reading a profile: that a drafter does not
/// exist is to be said first, and plugins tell.
Status check_drafter_weights(const Profile::Drafter& drafter);
const DrafterFacts* find_drafter(std::string_view name);
/// The first of the drafters at work of which `fact` is known to be true, or null.
const DrafterFacts* find_member(const Profile::Drafter& drafter, bool DrafterFacts::*fact);

}  // namespace turbo::profile
