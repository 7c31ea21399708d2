// Included by verify.h: the C tables over DeviceVerifier.
#include <turbo/kernel/tree_ops.hpp>

namespace turbo::sample_standard {

template <typename T>
struct VerifierTables {
  template <typename Body>
  static turbo_status with(void* self, turbo_error* error, const char* what, bool ok, Body&& body) {
    return guarded(error, [&] {
      turbo::detail::check(self && ok, what);
      body(static_cast<T*>(self)->verifier());
    });
  }
  static turbo_status build(void* self, const turbo_tree_build* a, turbo_error* e) {
    return with(self, e, "tree build", a && TURBO_HAS(a, n_orphans), [&](DeviceVerifier& v) { v.build(*a); });
  }
  static turbo_status link(void* self, const turbo_tree_links* a, turbo_error* e) {
    return with(self, e, "tree links", a && TURBO_HAS(a, next_sibling), [&](DeviceVerifier& v) { v.link(*a); });
  }
  static turbo_status greedy(void* self, const turbo_tree_walk* walk, const int64_t* target, turbo_error* e) {
    return with(self, e, "tree walk", walk && TURBO_HAS(walk, n_accepted) && target, [&](DeviceVerifier& v) { v.verify_greedy(*walk, target); });
  }
  static turbo_status coins(void* self, const turbo_tree_walk* walk, const turbo_tree_coins* c, turbo_error* e) {
    return with(self, e, "tree walk", walk && TURBO_HAS(walk, n_accepted) && c && TURBO_HAS(c, failed), [&](DeviceVerifier& v) { v.verify_coins(*walk, *c); });
  }
  static turbo_status device_build(void* self, turbo_stream* stream, const turbo_tree_build* a, uint32_t* malformed, turbo_error* e) {
    return with(self, e, "tree build", a && TURBO_HAS(a, n_orphans) && malformed, [&](DeviceVerifier& v) { v.build(stream, *a, malformed); });
  }
  static turbo_status device_link(void* self, turbo_stream* stream, const turbo_tree_links* a, turbo_error* e) {
    return with(self, e, "tree links", a && TURBO_HAS(a, next_sibling), [&](DeviceVerifier& v) { v.link(stream, *a); });
  }
  static turbo_status device_greedy(void* self, turbo_stream* stream, const turbo_tree_walk* walk, const int64_t* target, uint32_t* malformed, turbo_error* e) {
    return with(self, e, "tree walk", walk && TURBO_HAS(walk, n_accepted) && target && malformed,
                [&](DeviceVerifier& v) { v.verify_greedy(stream, *walk, target, malformed); });
  }
  static turbo_status device_coins(void* self, turbo_stream* stream, const turbo_tree_walk* walk, const turbo_tree_coins* c, uint32_t* malformed, turbo_error* e) {
    return with(self, e, "tree walk", walk && TURBO_HAS(walk, n_accepted) && c && TURBO_HAS(c, failed) && malformed,
                [&](DeviceVerifier& v) { v.verify_coins(stream, *walk, *c, malformed); });
  }
  static turbo_status pack_bits(void* self, turbo_stream* stream, const uint8_t* x, const uint64_t* in, uint32_t n, const uint64_t* out, uint8_t* y, turbo_error* e) {
    return with(self, e, "pack bits", n == 0 || (in && out), [&](DeviceVerifier& v) { v.pack_bits(stream, x, in, n, out, y); });
  }
  static uint64_t scratch_bytes(void*, uint32_t rows) { return DeviceVerifier::scratch_bytes(rows); }
  static turbo_status reset(void* self, turbo_stream* stream, void* scratch, uint32_t rows, turbo_error* e) {
    return with(self, e, "chain scratch", scratch, [&](DeviceVerifier& v) { v.reset(stream, scratch, rows); });
  }
  template <typename Args, void (DeviceVerifier::*member)(turbo_stream*, const Args&) const>
  static turbo_status chain(void* self, turbo_stream* stream, const Args* a, turbo_error* e) {
    return with(self, e, "chain op", a && a->struct_size >= sizeof(Args), [&](DeviceVerifier& v) { (v.*member)(stream, *a); });
  }
};

template <typename T>
const void* verifier_interface(std::string_view id) {
  using V = VerifierTables<T>;
  static constexpr turbo_tree_ops tree = {sizeof tree, 0, &V::build, &V::link, &V::greedy, &V::coins};
  static constexpr turbo_tree_ops_device device = {sizeof device, 0, &V::device_build, &V::device_link, &V::device_greedy, &V::device_coins, &V::pack_bits};
  static constexpr turbo_chain_ops chain = {
      sizeof chain, 0, &V::scratch_bytes, &V::reset,
      &V::template chain<turbo_draft_step, &DeviceVerifier::draft_step>, &V::template chain<turbo_chain_verify, &DeviceVerifier::verify>,
      &V::template chain<turbo_chain_tree, &DeviceVerifier::build_tree>, &V::template chain<turbo_chain_commit, &DeviceVerifier::commit>,
#if defined(TURBO_SIMULATED_ACCEPT)
      &V::template chain<turbo_simulated_accept, &DeviceVerifier::simulated_accept>
#else
      nullptr
#endif
  };
  if (id == TURBO_TREE_OPS_DRAFT) return &tree;
  if (id == TURBO_TREE_OPS_DEVICE_DRAFT) return &device;
  return id == TURBO_CHAIN_OPS_DRAFT ? &chain : nullptr;
}

}  // namespace turbo::sample_standard
