// Lowering: ops to phases with as few barriers as their dependencies allow, then memory by life time.
//
// Each op goes to the earliest phase after everything it depends on. It shares the phase of its producer when the
// producer works on the same slices (row-wise chains with equal rows and groups, element-wise ops on the outputs of
// matmuls); so the shared activation is prepared by the norm that makes it, head norms, rope, append and query
// preparation run per head, and residual and gate run on each matmul item while its outputs are warm.
#include "plan.h"

#include <turbo/pack/program_check.hpp>

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <tuple>

namespace turbo::arch_cpu {
namespace {

using Resources = std::vector<Resource>;

bool contains(const Resources& list, Resource r) { return std::find(list.begin(), list.end(), r) != list.end(); }
bool overlap(const Resources& a, const Resources& b) {
  return std::any_of(a.begin(), a.end(), [&b](Resource r) { return contains(b, r); });
}
void unite(Resources& into, const Resources& more) {
  for (const Resource r : more)
    if (!contains(into, r)) into.push_back(r);
}

// Buffers an op writes.
Resources written_buffers(const turbo_op& op) {
  switch (op.kind) {
    case TURBO_OP_EMBED: return {op.u.embed.out};
    case TURBO_OP_RMS_NORM: return {op.u.rms_norm.out};
    case TURBO_OP_MATMUL: return {op.u.matmul.out};
    case TURBO_OP_ADD: return {op.u.add.out};
    case TURBO_OP_ROPE: return {op.u.rope.inout};
    case TURBO_OP_ATTEND: return {op.u.attend.out};
    case TURBO_OP_GATED_ACT: return {op.u.gated_act.out};
    case TURBO_OP_GATHER_ROWS: return {op.u.gather_rows.out};
    case TURBO_OP_TOP_K: return {op.u.top_k.ids, op.u.top_k.values};
    case TURBO_OP_CONCAT: return {op.u.concat.out};
    case TURBO_OP_TAP: return {op.u.tap.out};
  }
  return {};
}

class Lowering {
 public:
  Lowering(const turbo_program& program, uint32_t n_threads) : p_(program), n_threads_(n_threads), plan_(std::make_unique<turbo_plan>()) {}

  std::unique_ptr<turbo_plan> run(const turbo_host_alloc* alloc, const char* isa) {
    make_buffers();
    make_attention();
    for (uint32_t i = 0; i < p_.n_ops; ++i) {
      lower(p_.ops[i]);
      for (const Resource r : written_buffers(p_.ops[i])) ++version_[r];
    }
    allocate(alloc);
    explain(isa);
    return std::move(plan_);
  }

 private:
  struct Prepared { Resource in; uint32_t version; std::string id; uint64_t bytes; Resource slot; };

  Resource add_resource(uint64_t row_bytes, bool logit, bool always = false) {
    ResourceInfo info;
    const uint64_t rows = logit ? p_.max_logit_rows : p_.max_rows;
    info.row_bytes = row_bytes;
    info.bytes = checked_add(checked_mul(row_bytes, rows, "workspace"), row_bytes ? 64 : 0, "workspace");
    info.logit = logit;
    info.always = always;
    plan_->resources.push_back(info);
    last_write_.push_back(-1);
    last_read_.push_back(-1);
    return static_cast<Resource>(plan_->resources.size() - 1);
  }

  void make_buffers() {
    plan_->name = p_.name ? p_.name : "";
    plan_->max_rows = p_.max_rows;
    plan_->max_logit_rows = p_.max_logit_rows;
    plan_->n_inputs = p_.n_inputs;
    for (uint32_t i = 0; i < p_.n_buffers; ++i) {
      turbo_buffer copy = p_.buffers[i];
      copy.name = nullptr;
      const bool always = copy.keep || i < p_.n_inputs;
      plan_->buffers.push_back(copy);
      plan_->readable.push_back(always ? i : TURBO_NO_BUFFER);
      add_resource(copy.width * sizeof(float), copy.rows == TURBO_ROWS_LOGIT, always);
    }
    version_.assign(p_.n_buffers, 0);
    plan_->needs.max_rows = p_.max_rows;
    plan_->needs.max_logit_rows = p_.max_logit_rows;
    plan_->pool = p_.kv;
    if (p_.kv) plan_->needs.pool = facts_of(*p_.kv);
  }

  // One cache resource per layer, and room for stored split partials.
  void make_attention() {
    if (!p_.kv) return;
    const turbo_kv_pool& kv = *p_.kv;
    for (uint32_t layer = 0; layer < kv.desc.n_layers; ++layer) cache_.push_back(add_resource(0, false));
    uint32_t max_heads = 0;
    for (uint32_t i = 0; i < p_.n_ops; ++i)
      if (p_.ops[i].kind == TURBO_OP_ATTEND) max_heads = std::max(max_heads, p_.ops[i].u.attend.n_heads);
    if (max_heads == 0) return;
    turbo_plan& plan = *plan_;
    const uint32_t kv_heads = kv.desc.n_kv_heads;
    plan.max_heads = max_heads;
    plan.max_gqa = max_heads / kv_heads;
    plan.group_rows = std::clamp(32u / plan.max_gqa, 1u, 16u);
    plan.partial_stride = 16 + kv.value_floats();
    plan.partials = add_resource(0, false);
    if (n_threads_ > 1) {
      // Few rows at a long context: enough (row, kv head, split run) items for the team. More rows need no splitting.
      const uint64_t rows = std::min<uint64_t>(p_.max_rows, (uint64_t{n_threads_} * 4 + kv_heads - 1) / kv_heads);
      const uint64_t most = (uint64_t{64} << 20) / (plan.partial_stride * sizeof(float));
      plan.partial_capacity = std::min(rows * max_heads * kv.n_blocks(), most);
      plan.resources[plan.partials].bytes = plan.partial_capacity * plan.partial_stride * sizeof(float);
    }
    plan.cut.groups.resize(p_.max_rows);
    plan.n_arrivals = static_cast<uint32_t>(checked_mul(p_.max_rows, kv_heads, "workspace"));
    plan.arrivals = std::make_unique<std::atomic<uint32_t>[]>(plan.n_arrivals);
  }

  // ---- placement

  int last_dependency(const Resources& reads, const Resources& writes) const {
    int phase = -1;
    for (const Resource r : reads) phase = std::max(phase, last_write_[r]);
    for (const Resource r : writes) phase = std::max({phase, last_write_[r], last_read_[r]});
    return phase;
  }
  std::vector<size_t> conflicts(int phase, const Resources& reads, const Resources& writes) const {
    std::vector<size_t> hit;
    const std::vector<Job>& jobs = plan_->phases[phase].jobs;
    for (size_t j = 0; j < jobs.size(); ++j)
      if (overlap(reads, jobs[j].writes) || overlap(writes, jobs[j].writes) || overlap(writes, jobs[j].reads)) hit.push_back(j);
    return hit;
  }
  void note(int phase, const Resources& reads, const Resources& writes) {
    const auto touch = [&](Resource r) {
      ResourceInfo& info = plan_->resources[r];
      info.first = info.first < 0 ? phase : std::min(info.first, phase);
      info.last = std::max(info.last, phase);
    };
    for (const Resource r : reads) { last_read_[r] = std::max(last_read_[r], phase); touch(r); }
    for (const Resource r : writes) { last_write_[r] = std::max(last_write_[r], phase); touch(r); }
  }
  void add_job(int phase, Job job) {
    if (phase >= static_cast<int>(plan_->phases.size())) plan_->phases.resize(phase + 1);
    note(phase, job.reads, job.writes);
    plan_->phases[phase].jobs.push_back(std::move(job));
  }

  void add_chain(const MicroOp& op, bool logit, uint32_t groups, const Resources& reads, const Resources& writes) {
    const int phase = last_dependency(reads, writes);
    if (phase >= 0) {
      const auto hit = conflicts(phase, reads, writes);
      if (hit.size() == 1) {
        Job& job = plan_->phases[phase].jobs[hit[0]];
        ChainJob* chain = std::get_if<ChainJob>(&job.work);
        if (chain && chain->logit == logit && chain->groups == groups) {
          chain->ops.push_back(op);
          unite(job.reads, reads);
          unite(job.writes, writes);
          note(phase, reads, writes);
          ++n_chained_;
          return;
        }
      }
    }
    add_job(phase + 1, {ChainJob{logit, groups, {op}}, reads, writes});
  }

  // Element-wise ops run on the items of the matmuls that feed them, when those cover the same rows and outputs.
  void add_elementwise(const MicroOp& op, bool logit, const Resources& reads, const Resources& writes) {
    const int phase = last_dependency(reads, writes);
    if (phase >= 0 && fuse_elementwise(phase, op, logit, reads, writes)) return;
    add_chain(op, logit, 1, reads, writes);
  }
  bool fuse_elementwise(int phase, const MicroOp& op, bool logit, const Resources& reads, const Resources& writes) {
    auto hit = conflicts(phase, reads, writes);
    std::vector<Job>& jobs = plan_->phases[phase].jobs;
    uint64_t tile = 1;
    for (const size_t j : hit) {
      const MatmulJob* matmul = std::get_if<MatmulJob>(&jobs[j].work);
      if (!matmul || matmul->logit != logit || matmul->outputs != op.out_width) return false;
      tile = std::lcm(tile, matmul->tile);
    }
    if (hit.empty() || tile > 65536) return false;
    Job& job = jobs[hit[0]];
    MatmulJob& into = std::get<MatmulJob>(job.work);
    for (size_t i = 1; i < hit.size(); ++i) {
      Job& other = jobs[hit[i]];
      MatmulJob& from = std::get<MatmulJob>(other.work);
      into.members.insert(into.members.end(), from.members.begin(), from.members.end());
      into.epilogue.insert(into.epilogue.end(), from.epilogue.begin(), from.epilogue.end());
      unite(job.reads, other.reads);
      unite(job.writes, other.writes);
    }
    into.tile = tile;
    into.epilogue.push_back(op);
    unite(job.reads, reads);
    unite(job.writes, writes);
    note(phase, reads, writes);
    for (size_t i = hit.size(); i-- > 1;) jobs.erase(jobs.begin() + static_cast<ptrdiff_t>(hit[i]));
    ++n_fused_;
    return true;
  }

  // ---- ops

  uint64_t width(uint32_t buffer) const { return p_.buffers[buffer].width; }
  bool logit(uint32_t buffer) const { return p_.buffers[buffer].rows == TURBO_ROWS_LOGIT; }

  MicroOp micro(Micro kind, uint32_t a, uint32_t b, uint32_t out) const {
    MicroOp op{kind, a, b, out};
    const auto wide = [this](uint32_t r) { return r < p_.n_buffers ? width(r) : 0; };
    op.a_width = wide(a);
    op.b_width = wide(b);
    op.out_width = wide(out);
    return op;
  }

  void lower(const turbo_op& op) {
    switch (op.kind) {
      case TURBO_OP_EMBED: return embed(op.u.embed);
      case TURBO_OP_RMS_NORM: return rms_norm(op.u.rms_norm);
      case TURBO_OP_MATMUL: return matmul(op.u.matmul);
      case TURBO_OP_ADD: {
        const turbo_op_add& o = op.u.add;
        return add_elementwise(micro(Micro::add, o.a, o.b, o.out), logit(o.out), {o.a, o.b}, {o.out});
      }
      case TURBO_OP_ROPE: return rope(op.u.rope);
      case TURBO_OP_KV_APPEND: return kv_append(op.u.kv_append);
      case TURBO_OP_ATTEND: return attend(op.u.attend);
      case TURBO_OP_GATED_ACT: {
        const turbo_op_gated_act& o = op.u.gated_act;
        MicroOp act = micro(Micro::gated_act, o.gate, o.up, o.out);
        act.choice = o.act;
        return add_elementwise(act, logit(o.out), {o.gate, o.up}, {o.out});
      }
      case TURBO_OP_GATHER_ROWS: {
        const turbo_op_gather_rows& o = op.u.gather_rows;
        return add_chain(micro(Micro::gather, o.in, o.in, o.out), true, 1, {o.in}, {o.out});
      }
      case TURBO_OP_TAP: {
        const turbo_op_tap& o = op.u.tap;
        return add_chain(micro(Micro::tap, o.in, o.in, o.out), logit(o.in), 1, {o.in}, {o.out});
      }
      case TURBO_OP_TOP_K: {
        const turbo_op_top_k& o = op.u.top_k;
        return add_chain(micro(Micro::top_k, o.in, o.values, o.ids), logit(o.in), 1, {o.in}, {o.ids, o.values});
      }
      case TURBO_OP_CONCAT: {
        const turbo_op_concat& o = op.u.concat;
        return add_chain(micro(Micro::concat, o.a, o.b, o.out), logit(o.out), 1, {o.a, o.b}, {o.out});
      }
    }
  }

  void embed(const turbo_op_embed& o) {
    plan_->needs.vocabulary = o.table->rows;
    MicroOp op = micro(Micro::embed, o.out, o.out, o.out);
    op.weight = o.table;
    add_chain(op, false, 1, {}, {o.out});
  }

  void rms_norm(const turbo_op_rms_norm& o) {
    MicroOp op = micro(Micro::rms_norm, o.in, o.in, o.out);
    op.weight = o.weight;
    op.eps = o.eps;
    add_chain(op, logit(o.out), o.groups, {o.in}, {o.out});
  }

  void matmul(const turbo_op_matmul& o) {
    const turbo_weight& w = *o.weight;
    const auto same = [&](const Prepared& p) {
      return p.in == o.in && p.version == version_[o.in] && p.id == w.activation_id && p.bytes == w.activation_bytes && !p.id.empty();
    };
    const auto found = std::find_if(prepared_.begin(), prepared_.end(), same);
    Resource slot;
    if (found != prepared_.end()) {
      slot = found->slot;
      ++n_shared_;
    } else {
      slot = add_resource(align_up(w.activation_bytes, 64), logit(o.in));
      MicroOp op = micro(Micro::prepare_activation, o.in, o.in, slot);
      op.weight = &w;
      add_chain(op, logit(o.in), 1, {o.in}, {slot});
      if (prepared_.size() > 64) prepared_.erase(prepared_.begin());
      prepared_.push_back({o.in, version_[o.in], w.activation_id, w.activation_bytes, slot});
    }
    MatmulJob job{logit(o.out), w.rows, w.tile, {{&w, o.bias, slot, o.out}}, {}};
    const Resources reads{slot}, writes{o.out};
    add_job(last_dependency(reads, writes) + 1, {std::move(job), reads, writes});
  }

  void rope(const turbo_op_rope& o) {
    uint32_t magnitude_bits;
    std::memcpy(&magnitude_bits, &o.magnitude, 4);
    const auto key = std::make_tuple(o.frequencies, o.dims, magnitude_bits);
    auto found = rope_tables_.find(key);
    if (found == rope_tables_.end()) {
      const Resource table = add_resource(uint64_t{o.dims} * sizeof(float), false);
      found = rope_tables_.emplace(key, table).first;
      MicroOp op = micro(Micro::rope_table, table, table, table);
      op.weight = o.frequencies;
      op.eps = o.magnitude;
      op.dims = o.dims;
      add_chain(op, false, 1, {}, {table});
    }
    MicroOp op = micro(Micro::rope, o.inout, found->second, o.inout);
    op.dims = o.dims;
    op.choice = o.style;
    add_chain(op, false, o.n_heads, {o.inout, found->second}, {o.inout});
    plan_->needs.positions = true;
  }

  void kv_append(const turbo_op_kv_append& o) {
    MicroOp op = micro(Micro::kv_append, o.k, o.v, o.k);
    op.layer = o.layer;
    add_chain(op, false, p_.kv->desc.n_kv_heads, {o.k, o.v}, {cache_[o.layer]});
    plan_->needs.appends = true;
  }

  void attend(const turbo_op_attend& o) {
    const KvPart& keys = p_.kv->part(TURBO_KV_SIDE_K, o.layer);
    const Resource query = add_resource(uint64_t{keys.n_forms()} * o.n_heads * keys.query_stride * sizeof(float), false);
    MicroOp prepare = micro(Micro::prepare_query, o.q, o.q, query);
    prepare.layer = o.layer;
    add_chain(prepare, false, o.n_heads, {o.q}, {query});
    const Resources reads{query, cache_[o.layer]}, writes{o.out, plan_->partials};
    add_job(last_dependency(reads, writes) + 1, {AttendJob{o.layer, o.n_heads, o.scale, query, o.out}, reads, writes});
    plan_->needs.attends = true;
  }

  // ---- memory

  void allocate(const turbo_host_alloc* alloc) {
    turbo_plan& plan = *plan_;
    uint64_t end = 0;
    std::vector<Resource> shared;
    for (Resource r = 0; r < plan.resources.size(); ++r) {
      ResourceInfo& info = plan.resources[r];
      if (info.bytes == 0 || (!info.always && info.first < 0)) continue;
      if (!info.always) { shared.push_back(r); continue; }
      info.offset = end;
      end = align_up(checked_add(end, info.bytes + 64, "workspace"), 64);
    }
    end = place_shared(shared, end);
    plan.arena = Memory(alloc, end, 64, "workspace", true);
    for (const ResourceInfo& info : plan.resources)  // kept and input rows never show old memory
      if (info.always && info.bytes) std::memset(plan.arena.data() + info.offset, 0, info.bytes);
    const uint64_t queries = uint64_t{plan.group_rows} * plan.max_gqa;
    const uint64_t floats = queries * (64 + 4 + 2 * plan.partial_stride) + 1024 + plan.partial_stride;
    plan.scratch_stride = plan.max_heads ? align_up(floats * sizeof(float) + plan.group_rows * 2 * 64 * 32, 4096) : 0;
    plan.scratch = Memory(alloc, checked_mul(plan.scratch_stride, n_threads_, "workspace"), 4096, "workspace", false);
    plan.n_members = n_threads_;
    plan.taken = std::make_unique<Counter[]>(plan.phases.size() * n_threads_);
  }

  // First fit by rising first phase; a range is free again once its last phase is over.
  uint64_t place_shared(std::vector<Resource>& shared, uint64_t base) {
    std::vector<ResourceInfo>& all = plan_->resources;
    std::stable_sort(shared.begin(), shared.end(), [&all](Resource a, Resource b) { return all[a].first < all[b].first; });
    std::vector<Resource> live;  // by offset
    uint64_t end = base;
    for (const Resource r : shared) {
      std::erase_if(live, [&](Resource other) { return all[other].last < all[r].first; });
      const uint64_t need = align_up(checked_add(all[r].bytes, 64, "workspace"), 64);
      uint64_t at = base;
      auto before = live.begin();
      for (; before != live.end() && at + need > all[*before].offset; ++before)
        at = std::max(at, align_up(all[*before].offset + all[*before].bytes + 64, 64));
      all[r].offset = at;
      live.insert(before, r);
      end = std::max(end, checked_add(at, need, "workspace"));
    }
    return end;
  }

  void explain(const char* isa) {
    size_t chains = 0, matmuls = 0, attends = 0;
    for (const Phase& phase : plan_->phases)
      for (const Job& job : phase.jobs) {
        chains += std::holds_alternative<ChainJob>(job.work);
        matmuls += std::holds_alternative<MatmulJob>(job.work);
        attends += std::holds_alternative<AttendJob>(job.work);
      }
    plan_->explanation = std::string("fused on cpu ") + isa + ": " + std::to_string(p_.n_ops) + " ops in " + std::to_string(plan_->phases.size()) +
                         " phases over " + std::to_string(n_threads_) + " threads (" + std::to_string(matmuls) + " matmul, " +
                         std::to_string(chains) + " row, " + std::to_string(attends) + " attention jobs; " + std::to_string(n_fused_) +
                         " element-wise and " + std::to_string(n_chained_) + " row ops fused, " + std::to_string(n_shared_) +
                         " activations shared), workspace " + std::to_string(plan_->bytes() >> 10) + " KiB";
  }

  const turbo_program& p_;
  uint32_t n_threads_;
  std::unique_ptr<turbo_plan> plan_;
  std::vector<int> last_write_, last_read_;  // per resource: phase
  std::vector<uint32_t> version_;            // per buffer: writes so far
  std::vector<Resource> cache_;              // per layer
  std::vector<Prepared> prepared_;
  std::map<std::tuple<const turbo_weight*, uint32_t, uint32_t>, Resource> rope_tables_;
  size_t n_fused_ = 0, n_chained_ = 0, n_shared_ = 0;
};

}  // namespace

std::unique_ptr<turbo_plan> compile_plan(const turbo_program& program, const pack::Facts& facts, const turbo_host_alloc* alloc,
                                         uint32_t n_threads, const char* isa) {
  pack::check_program(program, facts);
  return Lowering(program, n_threads).run(alloc, isa);
}

}  // namespace turbo::arch_cpu
