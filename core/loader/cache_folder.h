// Where turbo keeps what it can find out again. Reads the environment; any thread.
#pragma once

#include <filesystem>
#include <string_view>

namespace turbo::loader {

/// $XDG_CACHE_HOME/turbo/NAME or ~/.cache/turbo/NAME; empty when there is no home. The folder may not exist.
std::filesystem::path cache_folder(std::string_view name);

}  // namespace turbo::loader
