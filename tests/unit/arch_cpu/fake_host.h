// Host for the tests: registry with an in-test f32 weight format and a chosen KV codec, and the option "threads".
#pragma once

#include "unit/kv_float/library.h"

#include <turbo/abi/draft/arch_pack.h>
#include <turbo/abi/draft/kv_codec.h>
#include <turbo/kernel/half.h>
#include <turbo/kernel/lanes.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <map>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace turbo::test {

inline Library& pack_library() {
  static Library lib(std::string(TURBO_TEST_PLUGINS) + "/arch_cpu/libturbo_arch_cpu.so");
  return lib;
}
/// The codec of that name in the built plugins, or null. A program depends on the libraries that it names codecs of.
inline const turbo_component* codec_component(const std::string& name) {
  const auto in = [&name](const std::string& folder) {
    static std::map<std::string, std::unique_ptr<Library>> open;
    std::unique_ptr<Library>& library = open[folder];
    if (!library) library = std::make_unique<Library>(std::string(TURBO_TEST_PLUGINS) + "/" + folder + "/libturbo_" + folder + "_cpu.so");
    return library->component(name);
  };
  return in(name.rfind("tq", 0) == 0 ? "kv_turboquant" : name.rfind("rq", 0) == 0 ? "kv_rotorquant" : "kv_float");
}

/// f32 rows, copied by repack, outputs in tiles of 8. Counts what a pack must not do.
struct TileFormat {
  std::atomic<uint32_t> misuse{0};
  std::atomic<uint64_t> repacked_rows{0};
  std::atomic<uint32_t> prepared{0};
  static constexpr uint32_t kTile = 8;

  static TileFormat& of(void* self) { return *static_cast<TileFormat*>(self); }
  static const turbo_weight_format* table() {
    static const turbo_weight_format t = {
        sizeof(turbo_weight_format), 0,
        [](void*, const turbo_type_info** types, uint32_t* n) -> turbo_status {
          static const turbo_type_info info = {sizeof(turbo_type_info), TURBO_TYPE_F32, "f32", 1, 4};
          *types = &info;
          *n = 1;
          return TURBO_OK;
        },
        [](void*, uint32_t, uint64_t rows, uint64_t cols, uint64_t* bytes, uint64_t* alignment, uint32_t* tile, turbo_error*) -> turbo_status {
          *bytes = rows * cols * 4;
          *alignment = 64;
          *tile = kTile;
          return TURBO_OK;
        },
        [](void* self, uint32_t, uint64_t rows, uint64_t cols, const void* source, uint64_t bytes, void* packed, uint64_t begin, uint64_t end,
           turbo_error* error) -> turbo_status {
          if (bytes < rows * cols * 4) {
            error->code = TURBO_CORRUPT_INPUT;
            std::snprintf(error->message, sizeof error->message, "too short");
            return TURBO_CORRUPT_INPUT;
          }
          if (begin % kTile || (end % kTile && end != rows)) ++of(self).misuse;
          of(self).repacked_rows += end - begin;
          std::memcpy(static_cast<float*>(packed) + begin * cols, static_cast<const float*>(source) + begin * cols, (end - begin) * cols * 4);
          return TURBO_OK;
        },
        [](void*, const turbo_matrix* m, uint64_t begin, uint64_t end, float* dst) {
          std::memcpy(dst, static_cast<const float*>(m->packed) + begin * m->cols, (end - begin) * m->cols * 4);
        },
        [](void*, uint32_t) -> const char* { return "f32"; },
        [](void*, uint32_t, uint64_t cols) -> uint64_t { return (cols * 4 + 63) / 64 * 64; },
        [](void* self, uint32_t, const float* x, uint64_t cols, void* dst) {
          ++of(self).prepared;
          std::memcpy(dst, x, cols * 4);
        },
        [](void* self, const turbo_matmul* a) {
          const turbo_matrix& m = *a->matrix;
          if (a->out_begin % kTile || (a->out_end % kTile && a->out_end != m.rows) || a->out_end > m.rows) ++of(self).misuse;
          for (uint32_t r = 0; r < a->n_rows; ++r) {
            const float* x = reinterpret_cast<const float*>(static_cast<const uint8_t*>(a->activations) + r * a->activation_stride);
            for (uint64_t o = a->out_begin; o < a->out_end; ++o)
              a->out[r * a->out_stride + o] = turbo_dot_f32(static_cast<const float*>(m.packed) + o * m.cols, x, m.cols);
          }
        }};
    return &t;
  }
};

/// A codec of two forms in two bases: open rows are f32, packed rows are f16 of the negated value. Four sinks.
struct TwoFormCodec {
  static constexpr uint32_t kSinks = 4;
  static uint64_t at(const turbo_kv_shape* s, uint32_t head, uint32_t row) { return (uint64_t{head} * 64 + row) * s->head_dim; }
  static float value(const turbo_kv_shape* s, uint32_t form, const void* block, uint32_t head, uint32_t row, uint32_t e) {
    if (form == TURBO_KV_FORM_OPEN) return static_cast<const float*>(block)[at(s, head, row) + e];
    return turbo_f16_to_f32(static_cast<const uint16_t*>(block)[at(s, head, row) + e]);
  }
  static const turbo_kv_codec* table() {
    static const turbo_kv_codec t = {
        sizeof(turbo_kv_codec), 0,
        [](void*, const turbo_kv_shape* s, turbo_kv_layout* l, turbo_error*) -> turbo_status {
          *l = {};
          l->struct_size = sizeof *l;
          l->packed_block_bytes = uint64_t{s->n_kv_heads} * 64 * s->head_dim * 2;
          l->open_block_bytes = uint64_t{s->n_kv_heads} * 64 * s->head_dim * 4;
          l->alignment = 64;
          l->query_floats = s->head_dim;
          l->truncate_granularity = 1;
          l->sinks = kSinks;
          return TURBO_OK;
        },
        [](void*, const turbo_kv_shape* s, void* block, uint32_t row, const float* src, uint32_t begin, uint32_t end) -> turbo_status {
          for (uint32_t h = begin; h < end; ++h) std::memcpy(static_cast<float*>(block) + at(s, h, row), src + h * s->head_dim, s->head_dim * 4);
          return TURBO_OK;
        },
        [](void*, const turbo_kv_shape* s, const void* open, void* packed) -> turbo_status {
          for (uint64_t i = 0; i < uint64_t{s->n_kv_heads} * 64 * s->head_dim; ++i)
            static_cast<uint16_t*>(packed)[i] = turbo_f32_to_f16(-static_cast<const float*>(open)[i]);
          return TURBO_OK;
        },
        [](void*, const turbo_kv_shape* s, uint32_t form, const float* q, float* out) {
          for (uint32_t e = 0; e < s->head_dim; ++e) out[e] = form == TURBO_KV_FORM_OPEN ? q[e] : -q[e];
        },
        [](void*, const turbo_kv_shape* s, const turbo_kv_run* run, const float* queries, uint64_t qs, float* scores, uint64_t ss) {
          std::vector<float> key(s->head_dim);
          for (uint32_t q = 0; q < run->n_queries; ++q)
            for (uint32_t i = 0; i < run->n_rows; ++i) {
              for (uint32_t e = 0; e < s->head_dim; ++e) key[e] = value(s, run->form, run->block, run->kv_head, run->row_begin + i, e);
              scores[q * ss + i] = turbo_dot_f32(queries + q * qs, key.data(), s->head_dim);
            }
        },
        [](void*, const turbo_kv_shape* s, const turbo_kv_run* run, const float* w, uint64_t ws, float* out, uint64_t os) {
          for (uint32_t q = 0; q < run->n_queries; ++q)
            for (uint32_t i = 0; i < run->n_rows; ++i)
              for (uint32_t e = 0; e < s->head_dim; ++e)
                out[q * os + e] = fmaf(w[q * ws + i], value(s, run->form, run->block, run->kv_head, run->row_begin + i, e), out[q * os + e]);
        },
        [](void*, const turbo_kv_shape* s, uint32_t form, const float* acc, float* out) {
          for (uint32_t e = 0; e < s->head_dim; ++e) out[e] = form == TURBO_KV_FORM_OPEN ? acc[e] : -acc[e];
        },
        [](void*, const turbo_kv_shape* s, const void* src, uint32_t sr, void* dst, uint32_t dr) {
          for (uint32_t h = 0; h < s->n_kv_heads; ++h)
            std::memcpy(static_cast<float*>(dst) + at(s, h, dr), static_cast<const float*>(src) + at(s, h, sr), s->head_dim * 4);
        },
        [](void*, const turbo_kv_shape* s, uint32_t form, const void* block, uint32_t row, float* dst) {
          for (uint32_t h = 0; h < s->n_kv_heads; ++h)
            for (uint32_t e = 0; e < s->head_dim; ++e) dst[h * s->head_dim + e] = (form ? -1.0f : 1.0f) * value(s, form, block, h, row, e);
        },
        [](void*) -> uint64_t { return 2; }};
    return &t;
  }
};

class FakeHost {
 public:
  /// Names a layer's codec.
  using CodecOf = std::function<std::string(uint32_t side, uint32_t layer)>;

  /// codec: of a built plugin, "two_form", or "mixed": f16 where mixed_is_one_form, two_form elsewhere. codec_of, when
  /// given, names one of a built plugin for each part instead.
  FakeHost(uint32_t threads, const std::string& codec, const std::string& isa, CodecOf codec_of = {}) : threads_(threads), codec_of_(std::move(codec_of)) {
    host_ = {sizeof(turbo_host), TURBO_ABI_MAJOR, TURBO_ABI_MINOR, 0, this, &query};
    mixed_ = codec == "mixed";
    registry_ = {sizeof registry_, 0, this,
                 [](void* ctx, uint32_t type, const turbo_weight_format** format, void** self, turbo_error* error) -> turbo_status {
                   *format = TileFormat::table();
                   *self = &static_cast<FakeHost*>(ctx)->format;
                   if (type == TURBO_TYPE_F32) return TURBO_OK;
                   std::snprintf(error->message, sizeof error->message, "no format for type %u", type);
                   return TURBO_UNSUPPORTED;
                 },
                 [](void* ctx, uint32_t side, uint32_t layer, const turbo_kv_codec** codec, void** self, turbo_error*) -> turbo_status {
                   FakeHost& h = *static_cast<FakeHost*>(ctx);
                   if (h.codec_of_) {
                     auto& instance = h.parts_[h.codec_of_(side, layer)];
                     if (!instance)
                       instance = std::make_unique<Instance<turbo_kv_codec>>(codec_component(h.codec_of_(side, layer)), TURBO_KV_CODEC_DRAFT, &h.host_, "");
                     *codec = instance->table();
                     *self = instance->self();
                     return TURBO_OK;
                   }
                   const bool own = !h.mixed_ || mixed_is_one_form(side, layer);
                   *codec = own ? h.codec_table_ : TwoFormCodec::table();
                   *self = own && h.codec_ ? h.codec_->self() : nullptr;
                   return TURBO_OK;
                 },
                 nullptr};
    config_ = {sizeof config_, 0, this,
               [](void*, const char*, const char**) -> turbo_status { return TURBO_NOT_FOUND; },
               [](void* ctx, const char* key, int64_t* value) -> turbo_status {
                 *value = static_cast<FakeHost*>(ctx)->threads_;
                 return std::strcmp(key, "threads") == 0 ? TURBO_OK : TURBO_NOT_FOUND;
               },
               [](void*, const char*, double*) -> turbo_status { return TURBO_NOT_FOUND; },
               [](void*, const char*, uint32_t*) -> turbo_status { return TURBO_NOT_FOUND; }};
    if (codec == "two_form") codec_table_ = TwoFormCodec::table();
    else {
      codec_ = std::make_unique<Instance<turbo_kv_codec>>(codec_component(mixed_ ? "f16" : codec), TURBO_KV_CODEC_DRAFT, &host_, isa);
      codec_table_ = codec_->table();
    }
  }
  FakeHost(const FakeHost&) = delete;
  const turbo_host* raw() const { return &host_; }
  static bool mixed_is_one_form(uint32_t side, uint32_t layer) { return (side + layer) % 2 == 0; }
  TileFormat format;

 private:
  static const void* query(const turbo_host* host, const char* id) {
    const FakeHost& self = *static_cast<const FakeHost*>(host->ctx);
    if (std::strcmp(id, TURBO_HOST_REGISTRY_DRAFT) == 0) return &self.registry_;
    if (std::strcmp(id, TURBO_HOST_CONFIG) == 0 && self.config_.struct_size) return &self.config_;  // not while the codec is made
    return nullptr;
  }
  uint32_t threads_;
  turbo_host host_{};
  turbo_host_registry registry_{};
  turbo_host_config config_{};
  std::unique_ptr<Instance<turbo_kv_codec>> codec_;
  const turbo_kv_codec* codec_table_ = nullptr;
  bool mixed_ = false;
  CodecOf codec_of_;
  std::map<std::string, std::unique_ptr<Instance<turbo_kv_codec>>> parts_;
};

/// A pack with weights from plain vectors.
class PackWorld {
 public:
  explicit PackWorld(uint32_t threads, const std::string& codec = "f32", const std::string& isa = {}, FakeHost::CodecOf codec_of = {})
      : host(threads, codec, isa, std::move(codec_of)), pack(pack_library().component("cpu"), TURBO_ARCH_PACK_DRAFT, host.raw(), isa) {}
  const turbo_weight* weight(const std::vector<float>& values, uint64_t rows, uint64_t cols) {
    const turbo_weight_source source{sizeof(turbo_weight_source), TURBO_TYPE_F32, "w", rows, cols, values.data(), values.size() * 4, {0, 1, 0}};
    turbo_weight* w = nullptr;
    EXPECT_EQ(pack->weight_load(pack.self(), &source, &w, &error), TURBO_OK) << error.message;
    return w;
  }
  turbo_plan* compile(const turbo_program& program) {
    turbo_plan* plan = nullptr;
    status = pack->compile(pack.self(), &program, &plan, &error);
    return plan;
  }
  turbo_status run(turbo_plan* plan, turbo_step_table* table) { return status = pack->run(pack.self(), plan, table, &error); }
  float* buffer(turbo_plan* plan, uint32_t id) {
    turbo_view view{sizeof(turbo_view)};
    EXPECT_EQ(pack->plan_buffer(pack.self(), plan, id, &view, &error), TURBO_OK) << error.message;
    return static_cast<float*>(view.data);
  }
  turbo_step_table* table(uint32_t rows, uint32_t sequences = 1, uint32_t blocks = 1, uint32_t path = 0) {
    const turbo_step_caps caps{sizeof(turbo_step_caps), rows, sequences, rows, blocks, path};
    turbo_step_table* t = nullptr;
    EXPECT_EQ(pack->table_create(pack.self(), &caps, &t, &error), TURBO_OK) << error.message;
    return t;
  }
  FakeHost host;
  Instance<turbo_arch_pack> pack;
  turbo_error error{sizeof(turbo_error)};
  turbo_status status = TURBO_OK;
};

inline bool same_bits(const float* a, const float* b, size_t n) { return std::memcmp(a, b, n * sizeof(float)) == 0; }

}  // namespace turbo::test
