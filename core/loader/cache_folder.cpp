#include "loader/cache_folder.h"

#include <cstdlib>

namespace turbo::loader {
namespace fs = std::filesystem;

fs::path cache_folder(std::string_view name) {
  const auto absolute = [](const char* variable) -> fs::path {
    const char* value = std::getenv(variable);
    return value && value[0] == '/' ? fs::path(value) : fs::path();
  };
  if (const fs::path cache = absolute("XDG_CACHE_HOME"); !cache.empty()) return cache / "turbo" / name;
  // Accounts of services name homes that nobody made; making one is not this program's business.
  std::error_code failed;
  if (const fs::path home = absolute("HOME"); !home.empty() && fs::is_directory(home, failed)) return home / ".cache" / "turbo" / name;
  return {};
}

}  // namespace turbo::loader
