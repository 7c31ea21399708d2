#include "base/digest.h"

#include <cstdint>
#include <openssl/evp.h>

#include <new>

namespace turbo {

void Sha256::Free::operator()(evp_md_ctx_st* context) const { EVP_MD_CTX_free(context); }

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  if (!context_ || EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) != 1) throw std::bad_alloc();
}

Sha256& Sha256::add(std::span<const std::byte> bytes) {
  EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size());
  return *this;
}

Sha256& Sha256::add_text(std::string_view text) {
  const uint64_t size = text.size();
  return add(std::as_bytes(std::span(&size, 1))).add(std::as_bytes(std::span(text)));
}

Sha256::Value Sha256::finish() {
  Value value;
  unsigned size = static_cast<unsigned>(value.size());
  EVP_DigestFinal_ex(context_.get(), reinterpret_cast<unsigned char*>(value.data()), &size);
  return value;
}

std::string Sha256::hex(const Value& value) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : value) {
    text += kDigits[std::to_integer<unsigned>(byte) >> 4];
    text += kDigits[std::to_integer<unsigned>(byte) & 15];
  }
  return text;
}

}  // namespace turbo
