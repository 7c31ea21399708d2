// SHA-256 over bytes added piece by piece (OpenSSL).
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

struct evp_md_ctx_st;

namespace turbo {

class Sha256 {
 public:
  using Value = std::array<std::byte, 32>;

  Sha256();
  Sha256& add(std::span<const std::byte> bytes);
  /// A text with its length before it, so that texts one behind the other cannot be mistaken.
  Sha256& add_text(std::string_view text);
  /// Ends the sum; the object is used up.
  Value finish();
  static std::string hex(const Value& value);

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> context_;
};

}  // namespace turbo
