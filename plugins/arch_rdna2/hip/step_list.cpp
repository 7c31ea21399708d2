#include "step_list.h"

#include <algorithm>
#include <charconv>
#include <cstring>

namespace turbo::arch_rdna2 {
namespace {

using gpu::AttendArgs;
using gpu::Stage;
using gpu::q1::Product;

constexpr uint64_t kMailAlignment = 256;

struct Range {
  uint64_t begin = 0, end = 0;
  bool empty() const { return begin == end; }
  bool meets(const Range& other) const { return begin < other.end && other.begin < end; }
};

Range range_of(const void* base, uint64_t bytes) {
  const auto begin = reinterpret_cast<uint64_t>(base);
  return {begin, begin + (base ? bytes : 0)};
}
Range floats_of(const float* base, uint64_t rows, uint64_t stride, uint64_t width) {
  return range_of(base, ((rows - 1) * stride + width) * sizeof(float));
}
/// All of a place of bytes, from its codes on.
Range bytes_of(const int8_t* codes, const gpu::Q8Scale* scales, uint64_t n_tiles) {
  const uint64_t rows = static_cast<uint64_t>(reinterpret_cast<const int8_t*>(scales) - codes) / (n_tiles * gpu::kQ8Tile);
  return range_of(codes, TURBO_DEVICE_Q8_BYTES(rows, n_tiles * gpu::kQ8Tile));
}

/// What a stage writes: its bytes (matrix none), or floats of a matrix.
struct Write {
  size_t stage;
  int matrix;  // -1: bytes
  Range range;
  uint64_t stride;  // floats of a row; bytes: tiles of a row
};

bool number(std::string_view text, uint32_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

/// "attend_f16_16_2"
std::optional<AttendKind> attend_kind(std::string_view name) {
  constexpr std::string_view kPrefix = "attend_";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  const size_t last = name.rfind('_'), before = last == std::string_view::npos || last == 0 ? last : name.rfind('_', last - 1);
  AttendKind kind;
  if (before == std::string_view::npos || !number(name.substr(last + 1), kind.queries) || !number(name.substr(before + 1, last - before - 1), kind.lanes))
    return std::nullopt;
  kind.codec = name.substr(0, before);
  return kind;
}

bool is_product(const hip::Enqueued& launch) {
  return launch.kernel->name.starts_with("q1_matvec_") && launch.arguments.size() == sizeof(Product);
}

class Builder {
 public:
  Builder(std::span<const hip::Enqueued> launches, const uint32_t* counts, uint32_t compute_units)
      : launches_(launches), counts_(counts), compute_units_(compute_units) {}

  StageRun run_from(size_t first) {
    run_ = {};
    writes_.clear();
    plain_reads_.clear();
    partials_.clear();
    read_here_.clear();
    run_.first = run_.end = first;
    while (run_.end < launches_.size() && take(launches_[run_.end])) ++run_.end;
    for (keep_what_stays(); const size_t bad = overwriting_attention(); keep_what_stays()) cut(bad);
    return std::move(run_);
  }

 private:
  bool take(const hip::Enqueued& launch) {
    if (is_product(launch)) return take_product(launch);
    const std::optional<AttendKind> kind = attend_kind(launch.kernel->name);
    return kind && launch.arguments.size() == sizeof(AttendArgs) && take_attention(launch, *kind);
  }

  // The last write of any of these bytes by a stage; null: they are from before the run.
  const Write* last_write(const Range& range) const {
    for (size_t i = writes_.size(); i-- > 0;)
      if (writes_[i].range.meets(range)) return &writes_[i];
    return nullptr;
  }
  bool by_the_last(const Write& write) const { return write.stage + 1 == run_.stages.size(); }

  uint8_t* box(uint64_t bytes) {
    const uint64_t at = run_.mail_bytes;
    run_.mail_bytes = (at + bytes + kMailAlignment - 1) / kMailAlignment * kMailAlignment;
    return reinterpret_cast<uint8_t*>(at + 1);
  }
  /// The box of a write, made when somebody first reads it.
  uint8_t* box_of(const Write& write, uint32_t& stride) {
    Stage& stage = run_.stages[write.stage];
    const bool bytes = write.matrix < 0, attention = stage.kind == gpu::stage_attention;
    uint8_t*& base = bytes ? stage.mail.out : stage.mail.floats[write.matrix];
    uint32_t& of_row = bytes ? stage.mail.out_stride : stage.mail.float_stride[write.matrix];
    if (!base) {
      const uint64_t row = bytes ? write.stride * gpu::kMailTile : gpu::q1::units_of(stage.product.matrix[write.matrix].rows) * gpu::q1::kUnit * gpu::kMailFloat;
      of_row = static_cast<uint32_t>(row);
      base = box(row * (attention ? stage.attend.a.max_rows : stage.product.max_rows));
    }
    stride = of_row;
    return base;
  }

  bool take_product(const hip::Enqueued& launch) {
    Product p;
    std::memcpy(&p, launch.arguments.data(), sizeof p);
    Stage stage{};
    stage.kind = gpu::stage_product;
    stage.logits = p.n_rows == counts_ + 2;
    if (!stage.logits && p.n_rows != counts_) return false;
    const uint64_t n_tiles = uint64_t{p.n_groups} * gpu::q1::kGroupTiles;
    const Range bytes = bytes_of(p.codes, p.scales, n_tiles);
    const Write* const input = last_write(bytes);
    if (input) {
      if (input->matrix >= 0 || input->range.begin != bytes.begin || input->stride != n_tiles || !by_the_last(*input)) return false;
      // All that the maker makes is read here, or somebody may still be at it later.
      const Stage& maker = run_.stages.back();
      const bool whole = maker.kind == gpu::stage_attention || maker.product.n_matrices == 1 || maker.product.fuse >= gpu::q1::fuse_silu;
      if (!whole || (maker.logits && !stage.logits)) return false;
      stage.mail.in = box_of(*input, stage.mail.in_stride);
    } else if (!run_.stages.empty()) {
      return false;
    }
    if (p.fuse == gpu::q1::fuse_add) {
      const Range residual = floats_of(p.residual, p.max_rows, p.residual_stride, p.matrix[0].rows);
      if (const Write* const made = last_write(residual)) {
        // Each unit is of the same block in both stages, or another block may not see it.
        const Stage& maker = run_.stages[made->stage];
        if (maker.kind != gpu::stage_product || made->matrix != 0 || made->range.begin != residual.begin || made->stride != p.residual_stride ||
            maker.product.n_units != p.n_units || maker.product.matrix[0].rows != p.matrix[0].rows)
          return false;
        read_here_.push_back(made->stage);
      } else {
        plain_reads_.push_back({run_.stages.size(), residual});
      }
    }
    if (!input) plain_reads_.push_back({run_.stages.size(), bytes});
    const bool gated = p.fuse >= gpu::q1::fuse_silu;
    const uint32_t parts = (p.n_units + compute_units_ - 1) / compute_units_ * (gated ? 2 : 1);
    stage.teams = gpu::q1::most_teams(p.n_groups) > 1 && (parts > 1 || gpu::q1::segment_groups(p.n_groups) > 2) ? 2 : 1;
    stage.shape = gpu::q1::matvec_shape(p.n_groups, p.n_units, compute_units_);
    stage.product = p;
    const size_t index = run_.stages.size();
    run_.stages.push_back(stage);
    run_.max_rows = std::max(run_.max_rows, p.max_rows);
    for (uint32_t i = 0; i < (gated ? 1 : p.n_matrices); ++i)
      writes_.push_back({index, static_cast<int>(i), floats_of(p.matrix[i].out, p.max_rows, p.matrix[i].out_stride, p.matrix[i].rows), p.matrix[i].out_stride});
    if (p.out_q8.codes) writes_.push_back({index, -1, bytes_of(p.out_q8.codes, p.out_q8.scales, p.out_q8.n_tiles), p.out_q8.n_tiles});
    return true;
  }

  bool take_attention(const hip::Enqueued& launch, const AttendKind& kind) {
    if (run_.stages.empty() || (run_.attend && *run_.attend != kind)) return false;
    AttendArgs args;
    std::memcpy(&args, launch.arguments.data(), sizeof args);
    const turbo_device_attend& a = args.a;
    if (!a.k_rows || !a.v_rows || !args.out_q8.codes || a.max_chunks > kMostStepChunks) return false;
    const uint64_t heads[3] = {a.n_heads, a.k.n_kv_heads, a.v.n_kv_heads}, dims[3] = {a.k.head_dim, a.k.head_dim, a.v.head_dim};
    const uint64_t strides[3] = {a.q_stride, a.k_stride, a.v_stride};
    const float* const rows[3] = {a.q, a.k_rows, a.v_rows};
    const Write* made[3];
    for (uint32_t i = 0; i < 3; ++i) {
      const Range range = floats_of(rows[i], a.max_rows, strides[i], heads[i] * dims[i]);
      made[i] = last_write(range);
      if (!made[i] || made[i]->matrix < 0 || made[i]->range.begin != range.begin || made[i]->stride != strides[i] || !by_the_last(*made[i]) ||
          range.end > made[i]->range.end || run_.stages[made[i]->stage].kind != gpu::stage_product)
        return false;
    }
    // All that the maker makes is read here, or somebody may still be at it later.
    if (run_.stages.back().product.n_matrices != 3 || made[0] == made[1] || made[0] == made[2] || made[1] == made[2]) return false;
    const Range out = floats_of(a.out, a.max_rows, a.out_stride, a.n_heads * dims[2]);
    const Range bytes = bytes_of(args.out_q8.codes, args.out_q8.scales, args.out_q8.n_tiles);
    Stage stage{};
    stage.kind = gpu::stage_attention;
    stage.grid[0] = launch.launch.grid_x;
    stage.grid[1] = launch.launch.grid_y;
    stage.grid[2] = launch.launch.grid_z;
    stage.attend = args;
    const size_t index = run_.stages.size();
    if (a.max_chunks > 1 && !args.loop)
      partials_.push_back({index, range_of(args.partials, uint64_t{a.max_rows} * a.n_heads * a.max_chunks * args.partial_stride * sizeof(float))});
    for (uint32_t i = 0; i < 3; ++i) stage.mail.floats[i] = box_of(*made[i], stage.mail.float_stride[i]);
    run_.stages.push_back(stage);
    run_.attend = kind;
    writes_.push_back({index, 0, out, a.out_stride});
    writes_.push_back({index, -1, bytes, args.out_q8.n_tiles});
    return true;
  }

  // What no later stage overwrites is there for whoever comes after the run; residuals are for the block itself.
  void keep_what_stays() {
    for (Stage& stage : run_.stages) stage.keeps_floats = stage.keeps_bytes = 0;
    for (const size_t stage : read_here_) run_.stages[stage].keeps_floats = 1;
    for (size_t i = 0; i < writes_.size(); ++i) {
      bool overwritten = false;
      for (size_t j = i + 1; j < writes_.size() && !overwritten; ++j)
        overwritten = writes_[j].stage > writes_[i].stage && writes_[j].range.begin <= writes_[i].range.begin && writes_[i].range.end <= writes_[j].range.end;
      if (overwritten) continue;
      Stage& stage = run_.stages[writes_[i].stage];
      (writes_[i].matrix < 0 ? stage.keeps_bytes : stage.keeps_floats) = 1;
    }
  }

  // Not every block has seen the end of the stage before attention, so what that one reads from memory must not be written.
  size_t overwriting_attention() const {
    for (const PlainRead& partials : partials_)
      for (const PlainRead& read : plain_reads_)
        if (read.stage + 1 == partials.stage && read.range.meets(partials.range)) return partials.stage;
    for (const Write& write : writes_) {
      const Stage& stage = run_.stages[write.stage];
      if (stage.kind != gpu::stage_attention || !(write.matrix < 0 ? stage.keeps_bytes : stage.keeps_floats)) continue;
      for (const PlainRead& read : plain_reads_)
        if (read.stage + 1 == write.stage && read.range.meets(write.range)) return write.stage;
    }
    return 0;
  }

  /// Leave out the stages from this one on, which is not the first.
  void cut(size_t stage) {
    run_.stages.resize(stage);
    run_.end = run_.first + stage;
    std::erase_if(writes_, [&](const Write& write) { return write.stage >= stage; });
    std::erase_if(plain_reads_, [&](const PlainRead& read) { return read.stage >= stage; });
    std::erase_if(partials_, [&](const PlainRead& partials) { return partials.stage >= stage; });
    if (std::none_of(run_.stages.begin(), run_.stages.end(), [](const Stage& left) { return left.kind == gpu::stage_attention; })) run_.attend.reset();
    std::erase_if(read_here_, [&](size_t read) { return read >= stage; });
  }

  struct PlainRead {
    size_t stage;
    Range range;
  };
  std::span<const hip::Enqueued> launches_;
  const uint32_t* counts_;
  uint32_t compute_units_;
  StageRun run_;
  std::vector<Write> writes_;
  std::vector<PlainRead> plain_reads_;
  std::vector<PlainRead> partials_;  // of attention: what its stage writes there
  std::vector<size_t> read_here_;  // stages whose floats a later one reads from memory
};

}  // namespace

std::vector<StageRun> find_stage_runs(std::span<const hip::Enqueued> launches, const uint32_t* counts, uint32_t compute_units) {
  std::vector<StageRun> runs;
  Builder builder(launches, counts, compute_units);
  for (size_t i = 0; i < launches.size();) {
    StageRun run = builder.run_from(i);
    i = std::max(run.end, i + 1);
    if (run.stages.size() >= kLeastStages) runs.push_back(std::move(run));
  }
  return runs;
}

}  // namespace turbo::arch_rdna2
