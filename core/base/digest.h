// SHA-256 over bytes added piece by piece (OpenSSL).
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>

struct evp_md_ctx_st;

namespace turbo {

class Sha256 {
 public:
  using Value = std::array<std::byte, 32>;

  Sha256();
  Sha256& add(std::span<const std::byte> bytes);
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
