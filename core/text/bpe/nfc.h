// Unicode normalisation form C, for vocabularies that ask for it. Pure function, any thread.
#pragma once

#include <string>
#include <string_view>

namespace turbo::text {

/// The text in NFC; bytes that are not UTF-8 stay as they are. O(n log n), however many marks follow one another.
std::string to_nfc(std::string_view text);

}  // namespace turbo::text
