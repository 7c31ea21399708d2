#include "loader/manifest.h"

#include <algorithm>
#include <charconv>
#include <functional>

#include "base/nearest.h"
#include "loader/files.h"
#include "loader/manifest_yaml.h"
#include "loader/text.h"

namespace turbo::loader {
namespace {

constexpr size_t max_libraries = 32;
constexpr size_t max_components = 256;

bool all_of_set(std::string_view text, std::string_view extra) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           extra.find(c) != std::string_view::npos;
  });
}

std::string meant(std::string_view name, const std::vector<std::string>& known) {
  const std::string near = nearest_name(name, known);
  return near.empty() ? std::string() : fmt::format("did you mean '{}'?", near);
}

// One map of the manifest: hands each known key to its reader, refuses the rest.
class MapReader {
 public:
  using Field = std::function<Status(const YamlValue&)>;
  MapReader(const YamlValue& map, std::string source) : map_(map), source_(std::move(source)) {}

  MapReader& required(std::string key, Field field) { return add(std::move(key), std::move(field), true); }
  MapReader& optional(std::string key, Field field) { return add(std::move(key), std::move(field), false); }

  Status read() const {
    if (map_.kind != YamlValue::Kind::map) return refuse(map_.line, "expected keys and values");
    std::vector<std::string> known;
    for (const Entry& entry : fields_) known.push_back(entry.key);
    for (const YamlEntry& given : map_.entries) {
      const auto found =
          std::find_if(fields_.begin(), fields_.end(), [&](const Entry& e) { return e.key == given.key; });
      if (found == fields_.end()) {
        const std::string near = meant(given.key, known);
        return refuse(given.value.line,
                      fmt::format("unknown key '{}'; known: {}", clean_text(given.key, 64), fmt::join(known, ", ")))
            .with_hint(near.empty() ? "remove it" : near);
      }
      TURBO_RETURN_IF_ERROR(found->field(given.value));
    }
    for (const Entry& entry : fields_) {
      const bool present =
          std::any_of(map_.entries.begin(), map_.entries.end(), [&](const auto& e) { return e.key == entry.key; });
      if (entry.required && !present) return refuse(map_.line, fmt::format("key '{}' is missing", entry.key));
    }
    return Status::ok();
  }

  Status refuse(int line, std::string_view why) const {
    return error(Code::invalid_argument, "{}:{}: {}", source_, line, why);
  }

 private:
  struct Entry {
    std::string key;
    Field field;
    bool required;
  };
  MapReader& add(std::string key, Field field, bool required) {
    fields_.push_back({std::move(key), std::move(field), required});
    return *this;
  }
  const YamlValue& map_;
  std::string source_;
  std::vector<Entry> fields_;
};

class ManifestReader {
 public:
  explicit ManifestReader(std::string source) : source_(std::move(source)) {}

  Result<Manifest> read(const YamlValue& root) {
    Manifest manifest;
    uint32_t schema = 0;
    TURBO_RETURN_IF_ERROR(
        MapReader(root, source_)
            .required("schema",
                      [&](const YamlValue& value) {
                        TURBO_RETURN_IF_ERROR(number("schema", &schema)(value));
                        if (schema == 1) return Status::ok();
                        // Here and not after the other keys: another schema may well have others.
                        return refuse(value.line, fmt::format("schema: expected 1 but found {}", schema))
                            .with_hint("install the turbo this plugin was made for");
                      })
            .required("id", text("id", 128, &manifest.id))
            .required("name", text("name", 128, &manifest.name))
            .required("version", text("version", 64, &manifest.version))
            .required("abi", [&](const YamlValue& value) { return read_abi(value, manifest); })
            .optional("vendor", text("vendor", 128, &manifest.vendor))
            .required("license", text("license", 128, &manifest.license))
            .optional("description", text("description", 1024, &manifest.description))
            .required("libraries", [&](const YamlValue& value) { return read_libraries(value, manifest); })
            .read());
    if (!is_plugin_id(manifest.id))
      return refuse(
          root.line,
          fmt::format("id: expected reverse DNS of [a-z0-9_-] such as org.example.name but found '{}'", manifest.id));
    if (!all_of_set(manifest.version, ".+-_~"))
      return refuse(root.line,
                    fmt::format("version: expected letters, digits and .+-_~ but found '{}'", manifest.version));
    return manifest;
  }

 private:
  Status refuse(int line, std::string_view why) const {
    return error(Code::invalid_argument, "{}:{}: {}", source_, line, why);
  }

  MapReader::Field text(std::string key, size_t max_bytes, std::string* out) const {
    return [this, key, max_bytes, out](const YamlValue& value) {
      if (value.kind != YamlValue::Kind::scalar || value.text.empty() || value.text.size() > max_bytes)
        return refuse(value.line, fmt::format("{}: expected text of 1 to {} bytes", key, max_bytes));
      if (clean_text(value.text, max_bytes) != value.text)
        return refuse(value.line, fmt::format("{}: expected one line of printable UTF-8", key));
      *out = value.text;
      return Status::ok();
    };
  }
  MapReader::Field number(std::string key, uint32_t* out) const {
    return [this, key, out](const YamlValue& value) {
      const char* end = value.text.data() + value.text.size();
      const auto [stop, failed] = std::from_chars(value.text.data(), end, *out);
      const bool leading_zero = value.text.size() > 1 && value.text[0] == '0';
      if (value.kind != YamlValue::Kind::scalar || value.quoted || failed != std::errc() || stop != end || leading_zero)
        return refuse(value.line,
                      fmt::format("{}: expected a whole number but found '{}'", key, clean_text(value.text, 64)));
      return Status::ok();
    };
  }

  Status read_abi(const YamlValue& value, Manifest& manifest) const {
    return MapReader(value, source_)
        .required("major", number("abi.major", &manifest.abi_major))
        .required("minor", number("abi.minor", &manifest.abi_minor))
        .read();
  }

  Status read_list(const YamlValue& value, std::string_view key, size_t max, const MapReader::Field& each) const {
    if (value.kind != YamlValue::Kind::list || value.items.empty() || value.items.size() > max)
      return refuse(value.line, fmt::format("{}: expected a list of 1 to {} entries", key, max));
    for (const YamlValue& item : value.items) TURBO_RETURN_IF_ERROR(each(item));
    return Status::ok();
  }

  Status read_libraries(const YamlValue& value, Manifest& manifest) {
    return read_list(value, "libraries", max_libraries, [&](const YamlValue& item) {
      ManifestLibrary& library = manifest.libraries.emplace_back();
      TURBO_RETURN_IF_ERROR(
          MapReader(item, source_)
              .required("path", text("path", 255, &library.path))
              .optional("sha256", text("sha256", 64, &library.sha256))
              .required("components", [&](const YamlValue& list) { return read_components(list, manifest, library); })
              .read());
      return check_library(item.line, library);
    });
  }

  Status check_library(int line, ManifestLibrary& library) const {
    const std::filesystem::path path(library.path);
    const bool leaves = path.is_absolute() || std::find(path.begin(), path.end(), "..") != path.end();
    if (leaves)
      return refuse(line, fmt::format("path: expected a file inside the plugin's folder but found '{}'", library.path))
          .with_hint("write the path relative to the manifest, without '..'");
    if (library.sha256.empty()) return Status::ok();
    for (char& c : library.sha256) c = c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c;
    if (library.sha256.size() != 64 || library.sha256.find_first_not_of("0123456789abcdef") != std::string::npos)
      return refuse(line, "sha256: expected 64 hex digits");
    return Status::ok();
  }

  Status read_components(const YamlValue& value, Manifest& manifest, ManifestLibrary& library) {
    return read_list(value, "components", max_components, [&](const YamlValue& item) {
      ManifestComponent component;
      TURBO_RETURN_IF_ERROR(read_component(item, component));
      for (const ManifestLibrary& other : manifest.libraries)
        for (const ManifestComponent& known : other.components)
          if (known.kind == component.kind && known.name == component.name && known.tier == component.tier)
            return refuse(item.line, fmt::format("component {} '{}' of tier {} is listed twice", component.kind,
                                                 component.name, tier_name(component.tier)));
      library.components.push_back(std::move(component));
      return Status::ok();
    });
  }

  Status read_component(const YamlValue& item, ManifestComponent& component) const {
    std::string tier;
    bool has_types = false;
    const auto types = [&](const YamlValue& value) {
      has_types = true;
      return read_list(value, "types", 64,
                       [&](const YamlValue& type) { return number("types", &component.types.emplace_back())(type); });
    };
    const auto needs = [&](const YamlValue& value) {
      return read_list(value, "needs", 64,
                       [&](const YamlValue& need) { return text("needs", 64, &component.needs.emplace_back())(need); });
    };
    TURBO_RETURN_IF_ERROR(MapReader(item, source_)
                              .required("kind", text("kind", 64, &component.kind))
                              .required("name", text("name", 64, &component.name))
                              .required("tier", text("tier", 16, &tier))
                              .optional("types", types)
                              .optional("needs", needs)
                              .read());
    const std::vector<std::string>& kinds = component_kinds();
    if (std::find(kinds.begin(), kinds.end(), component.kind) == kinds.end())
      return refuse(item.line,
                    fmt::format("kind: expected one of {} but found '{}'", fmt::join(kinds, ", "), component.kind))
          .with_hint(meant(component.kind, kinds));
    if (!is_component_name(component.name))
      return refuse(item.line,
                    fmt::format("name: expected 1 to 32 characters of [a-z0-9_] but found '{}'", component.name));
    const auto number_of_tier = tier_number(tier);
    if (!number_of_tier)
      return refuse(item.line, fmt::format("tier: expected hip, generic or cpu but found '{}'", tier))
          .with_hint(meant(tier, {"hip", "generic", "cpu"}));
    component.tier = *number_of_tier;
    const bool is_format = component.kind == "weight_format";
    if (is_format && !has_types)
      return refuse(item.line, "types: a weight_format lists the GGUF type numbers it serves");
    if (!is_format && has_types) return refuse(item.line, "types: only a weight_format has them");
    return Status::ok();
  }

  std::string source_;
};

}  // namespace

const std::vector<std::string>& component_kinds() {
  static const std::vector<std::string> kinds{"arch_pack", "weight_format", "kv_codec", "sampler", "drafter"};
  return kinds;
}

Result<Manifest> parse_manifest(std::string_view text, const std::string& source) {
  if (text.size() > max_manifest_bytes)
    return error(Code::resource_exhausted, "{}: expected at most {} bytes but found {}", source, max_manifest_bytes,
                 text.size());
  TURBO_ASSIGN(const YamlValue root, parse_bounded_yaml(text, source));
  return ManifestReader(source).read(root);
}

Result<Manifest> read_manifest(const std::filesystem::path& file) {
  TURBO_ASSIGN(const std::string text, read_bounded(file, max_manifest_bytes));
  return parse_manifest(text, clean_text(file.string(), 1024));
}

}  // namespace turbo::loader
