// Attention: with the head norms, the rotation and the append before it in one call where the codec takes them; else in
// fewer parts; at last as scores, softmax, weighted values and merge.
#include "lower.h"

#include <algorithm>
#include <bit>

namespace turbo::arch_rdna2 {
namespace {

constexpr uint64_t kScoreBytes = uint64_t{32} << 20;  // of one window of chunks, about

bool accepts(const turbo_kv_pool& pool, const turbo_device_attend& args) {
  const Codec &k = pool.part(TURBO_KV_SIDE_K, args.k.layer).codec, &v = pool.part(TURBO_KV_SIDE_V, args.v.layer).codec;
  turbo_error error{};
  error.struct_size = sizeof error;
  const turbo_status status = k.device->check(k.self, &args, v.fingerprint, &error);
  if (status != TURBO_OK && status != TURBO_UNSUPPORTED) throw Failure(status, error.message, error.hint);
  return status == TURBO_OK;
}

uint32_t most_chunks(const turbo_kv_pool& pool) {
  const uint64_t positions = uint64_t{pool.desc.n_blocks} * TURBO_KV_BLOCK;
  return static_cast<uint32_t>(std::bit_ceil((positions + TURBO_DEVICE_CHUNK - 1) / TURBO_DEVICE_CHUNK));
}

turbo_device_attend begin_args(const turbo_program& program, const turbo_op_attend& op) {
  const turbo_kv_pool& pool = *program.kv;
  turbo_device_attend args{};
  args.struct_size = sizeof args;
  args.max_rows = program.max_rows;
  args.k = pool.kv(TURBO_KV_SIDE_K, op.layer);
  args.v = pool.kv(TURBO_KV_SIDE_V, op.layer);
  args.n_heads = op.n_heads;
  args.max_chunks = most_chunks(pool);
  args.scale = op.scale;
  args.same_sequence = 1;
  args.q_stride = align_up(program.buffers[op.q].width, 32);
  args.out_stride = align_up(program.buffers[op.out].width, 32);
  return args;
}

// Scratch of attention taken apart: one window of chunks at a time.
struct Window {
  uint32_t chunks;
  uint64_t partial_stride, score_stride;
  uint64_t partials, state, bytes;  // scores lie at 0

  Window(const turbo_device_attend& args, uint32_t max_chunks) {
    const uint64_t rows = uint64_t{args.max_rows} * args.n_heads, chunk_bytes = rows * TURBO_DEVICE_CHUNK * sizeof(float);
    chunks = static_cast<uint32_t>(std::clamp<uint64_t>(kScoreBytes / chunk_bytes, 1, max_chunks));
    score_stride = uint64_t{chunks} * TURBO_DEVICE_CHUNK;
    partial_stride = align_up(2 + uint64_t{args.v.head_dim}, 4);
    partials = align_up(rows * score_stride * sizeof(float), 256);
    state = partials + align_up(rows * chunks * partial_stride * sizeof(float), 256);
    bytes = state + align_up(rows * (2 + uint64_t{args.v.head_dim}) * sizeof(float), 256);
  }
};

void run_window(const StepRun& run, const turbo_device_attend& args, const Window& w, uint32_t begin, uint32_t n, const Codec& k, const Codec& v) {
  const auto at = [&](uint64_t offset) { return reinterpret_cast<float*>(run.scratch + offset); };
  const WindowArgs window{run.table, args.n_heads, args.v.head_dim, begin, n, run.max_chunks, 0, at(0), at(w.partials), at(w.state), args.out,
                          w.score_stride, w.partial_stride, args.out_stride};
  checked("scores", [&](turbo_error* error) { return k.device->scores(k.self, run.stream, &args, begin, n, window.scores, w.score_stride, error); });
  run.ops.softmax(window, args.max_rows);
  checked("values", [&](turbo_error* error) {
    return v.device->accumulate(v.self, run.stream, &args, begin, n, window.scores, w.score_stride, window.partials, w.partial_stride, error);
  });
  run.ops.merge(window, args.max_rows);
}

}  // namespace

void Lowering::attention(uint32_t op) {
  const turbo_op_attend& attend = flow_.op(op).u.attend;
  const Value &query = flow_.read(op, 0), &cache = flow_.read(op, 1);
  const Prologue plain_q{query.buffer};
  if (fuse_ && flow_.is(cache.def, TURBO_OP_KV_APPEND) && !flow_.taken(static_cast<uint32_t>(cache.def))) {
    const auto append = static_cast<uint32_t>(cache.def);
    const Prologue q = prologue(query, op, attend.n_heads), k = prologue(flow_.read(append, 0), append, p_.kv->desc.n_kv_heads);
    const bool any = q.norm >= 0 || q.rope >= 0 || k.norm >= 0 || k.rope >= 0;
    if (any && same_rotation(q, k) && try_attention(op, cache.def, q, &k)) return;
    const Prologue plain_k{flow_.read(append, 0).buffer};
    if (try_attention(op, cache.def, plain_q, &plain_k)) return;
  }
  if (fuse_ && try_attention(op, -1, plain_q, nullptr)) return;
  plain_attention(op);
}

// The norm of heads and the rotation that only this reader sees.
Lowering::Prologue Lowering::prologue(const Value& value, uint32_t reader, uint32_t n_heads) const {
  Prologue found{value.buffer};
  const Value* at = &value;
  uint32_t only_reader = reader;
  if (flow_.is(at->def, TURBO_OP_ROPE) && flow_.only_for(*at, only_reader) && !flow_.taken(static_cast<uint32_t>(at->def))) {
    found.rope = at->def;
    only_reader = static_cast<uint32_t>(at->def);
    at = &flow_.read(only_reader);
    found.raw = at->buffer;
  }
  if (flow_.is(at->def, TURBO_OP_RMS_NORM) && flow_.only_for(*at, only_reader) && !flow_.taken(static_cast<uint32_t>(at->def)) &&
      flow_.op(static_cast<uint32_t>(at->def)).u.rms_norm.groups == n_heads) {
    found.norm = at->def;
    found.raw = flow_.read(static_cast<uint32_t>(at->def)).buffer;
  }
  return found;
}

bool Lowering::same_rotation(const Prologue& q, const Prologue& k) const {
  if (q.norm >= 0 && k.norm >= 0 && flow_.op(static_cast<uint32_t>(q.norm)).u.rms_norm.eps != flow_.op(static_cast<uint32_t>(k.norm)).u.rms_norm.eps)
    return false;
  if ((q.rope >= 0) != (k.rope >= 0)) return false;
  if (q.rope < 0) return true;
  const turbo_op_rope &a = flow_.op(static_cast<uint32_t>(q.rope)).u.rope, &b = flow_.op(static_cast<uint32_t>(k.rope)).u.rope;
  return a.frequencies == b.frequencies && a.dims == b.dims && a.style == b.style && a.magnitude == b.magnitude && a.head_dim == b.head_dim &&
         a.head_dim == p_.kv->desc.head_dim_k;
}

bool Lowering::try_attention(uint32_t op, int append, const Prologue& q, const Prologue* k) {
  const turbo_op_attend& attend = flow_.op(op).u.attend;
  turbo_device_attend args = begin_args(p_, attend);
  std::vector<uint32_t> ops{op}, reads{q.raw};
  uint32_t v_rows = TURBO_NO_BUFFER;
  const auto vector_of = [&](int norm) {
    ops.push_back(static_cast<uint32_t>(norm));
    args.eps = flow_.op(static_cast<uint32_t>(norm)).u.rms_norm.eps;
    return flow_.op(static_cast<uint32_t>(norm)).u.rms_norm.weight->vector();
  };
  if (q.norm >= 0) args.q_norm = vector_of(q.norm);
  if (k) {
    ops.push_back(static_cast<uint32_t>(append));
    v_rows = flow_.read(static_cast<uint32_t>(append), 1).buffer;
    reads.push_back(k->raw);
    reads.push_back(v_rows);
    if (k->norm >= 0) args.k_norm = vector_of(k->norm);
    if (k->rope >= 0) {
      const turbo_op_rope& rope = flow_.op(static_cast<uint32_t>(k->rope)).u.rope;
      ops.push_back(static_cast<uint32_t>(q.rope));
      ops.push_back(static_cast<uint32_t>(k->rope));
      args.rope_dims = rope.dims;
      args.rope_style = rope.style;
      args.rope_magnitude = rope.magnitude;
      args.rope_frequencies = rope.frequencies->vector();
    }
    args.k_stride = align_up(p_.buffers[k->raw].width, 32);
    args.v_stride = align_up(p_.buffers[v_rows].width, 32);
    // Whether rows are given is told by their addresses, which are not known yet.
    args.k_rows = args.v_rows = args.rope_frequencies ? args.rope_frequencies : reinterpret_cast<const float*>(uintptr_t{256});
  }
  std::sort(ops.begin(), ops.end());
  if (std::find(reads.begin(), reads.end(), attend.out) != reads.end() || !accepts(*p_.kv, args)) return false;
  const int anchor = flow_.find_anchor(ops);
  if (anchor < 0) return false;
  n_fused_ += static_cast<uint32_t>(ops.size() - 1);

  const turbo_kv_pool& pool = *p_.kv;
  const Codec codec = pool.part(TURBO_KV_SIDE_K, attend.layer).codec;
  const uint64_t v_fingerprint = pool.part(TURBO_KV_SIDE_V, attend.layer).codec.fingerprint;
  const std::shared_ptr<ByteLink> bytes =
      byte_end(byte_writers_, flow_.written(op), nullptr, args.max_rows, p_.buffers[attend.out].width, [&pool, args](const float* norm) {
        turbo_device_attend with = args;
        with.out_q8.rows = args.max_rows;
        return !norm && accepts(pool, with);
      });
  const uint32_t q_raw = q.raw, k_raw = k ? k->raw : TURBO_NO_BUFFER, out = attend.out;
  add_step(ops, static_cast<uint32_t>(anchor), reads, {out},
           [=](const StepRun& run) {
             turbo_device_attend now = args;
             now.table = run.table;
             now.max_chunks = run.max_chunks;
             now.q = run.plan.row(q_raw, 0);
             now.q_stride = run.plan.places[q_raw].stride;
             if (k_raw != TURBO_NO_BUFFER) {
               now.k_rows = run.plan.row(k_raw, 0);
               now.k_stride = run.plan.places[k_raw].stride;
               now.v_rows = run.plan.row(v_rows, 0);
               now.v_stride = run.plan.places[v_rows].stride;
             }
             now.out = run.plan.row(out, 0);
             now.out_stride = run.plan.places[out].stride;
             now.out_q8 = bytes->bytes(run.plan);
             now.workspace = run.scratch;
             checked("", [&](turbo_error* error) { return codec.device->attend(codec.self, run.stream, &now, v_fingerprint, error); });
           },
           [=](uint32_t max_chunks) {
             turbo_device_attend now = args;
             now.max_chunks = max_chunks;
             return codec.device->workspace_bytes(codec.self, &now, v_fingerprint);
           });
  return true;
}

void Lowering::plain_attention(uint32_t op) {
  const turbo_op_attend attend = flow_.op(op).u.attend;
  const turbo_device_attend args = begin_args(p_, attend);
  const turbo_kv_pool& pool = *p_.kv;
  const Codec k = pool.part(TURBO_KV_SIDE_K, attend.layer).codec, v = pool.part(TURBO_KV_SIDE_V, attend.layer).codec;
  add_step({op}, op, {attend.q}, {attend.out},
           [=](const StepRun& run) {
             turbo_device_attend now = args;
             now.table = run.table;
             now.max_chunks = run.max_chunks;
             now.q = run.plan.row(attend.q, 0);
             now.q_stride = run.plan.places[attend.q].stride;
             now.out = run.plan.row(attend.out, 0);
             now.out_stride = run.plan.places[attend.out].stride;
             const Window window(now, run.max_chunks);
             for (uint32_t begin = 0; begin < run.max_chunks; begin += window.chunks) {
               const uint32_t n = std::min(window.chunks, run.max_chunks - begin);
               run_window(run, now, window, begin, n, k, v);
             }
           },
           [args](uint32_t max_chunks) { return Window(args, max_chunks).bytes; });
}

}  // namespace turbo::arch_rdna2
