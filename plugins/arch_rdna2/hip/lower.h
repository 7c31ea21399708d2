// Lowering, shared by its parts: the program's values, what fused ops need of them, and the steps made so far.
#pragma once

#include "plan.h"

namespace turbo::arch_rdna2 {

/// "op 3 (matmul 'blk.0.attn_q.weight')".
std::string describe_op(const turbo_op& op, uint32_t index);

/// One writing of a buffer. Cache layers are buffers behind the program's own.
struct Value {
  uint32_t buffer;
  int def = -1;                   // op; -1: an input
  std::vector<uint32_t> readers;  // ops, rising
  bool visible = false;           // stays after the run
};

/// The program as values, and the order that must be kept while ops move.
class Flow {
 public:
  explicit Flow(const turbo_program& program);

  const turbo_op& op(uint32_t i) const { return p_.ops[i]; }
  uint32_t n_ops() const { return p_.n_ops; }
  const turbo_program& program() const { return p_; }
  const Value& read(uint32_t op, size_t i = 0) const { return values_[reads_[op][i]]; }
  const Value& written(uint32_t op, size_t i = 0) const { return values_[writes_[op][i]]; }
  /// Only this op reads the value, and nobody after the run.
  bool only_for(const Value& value, uint32_t reader) const { return !value.visible && value.readers.size() == 1 && value.readers[0] == reader; }
  bool is(int op, uint32_t kind) const { return op >= 0 && p_.ops[op].kind == kind; }

  bool taken(uint32_t op) const { return taken_[op]; }
  /// Whether these ops may all run in the place of `anchor`, one of them.
  bool ordered(const std::vector<uint32_t>& ops, uint32_t anchor) const;
  /// The last such place; -1: none.
  int find_anchor(const std::vector<uint32_t>& ops) const;
  void take(const std::vector<uint32_t>& ops, uint32_t anchor);

  /// GATHER_ROWS `gather` of the full-row norm `norm`: gathers the norm's input instead, and the norm is left to who
  /// reads the gathered rows. False when that would change what is gathered.
  bool gather_before_norm(uint32_t gather, uint32_t norm);

 private:
  bool touches(const std::vector<uint32_t>& a, const std::vector<uint32_t>& b) const;
  bool conflict(uint32_t x, uint32_t y) const;

  const turbo_program& p_;
  std::vector<Value> values_;
  std::vector<std::vector<uint32_t>> reads_, writes_;                // per op: values
  std::vector<std::vector<uint32_t>> read_buffers_, write_buffers_;  // per op
  std::vector<uint32_t> place_;                                      // per op: where it runs
  std::vector<bool> taken_;
};

/// Bytes of a value (turbo_device_q8), from the step that makes it to the products that read it; found once all steps are
/// made. A step asks for its link when it is enqueued.
struct ByteLink {
  uint32_t place = TURBO_NO_BUFFER;  // among the plan's places; none: floats
  uint64_t rows = 0;
  const float* norm = nullptr;       // weights that the bytes are made with

  turbo_device_q8 bytes(const turbo_plan& plan) const {
    if (place == TURBO_NO_BUFFER) return {};
    return {reinterpret_cast<uint8_t*>(plan.row(place, 0)), rows};
  }
};

struct BytePlace {
  uint64_t rows, cols;
};

/// Makes the steps of a program, fusing what formats and codecs take.
class Lowering {
 public:
  Lowering(const turbo_program& program, bool fuse) : p_(program), flow_(program), fuse_(fuse) {}
  std::vector<Step> run();
  uint32_t n_fused_ops() const { return n_fused_; }
  /// Places behind the program's buffers that the steps use, in order.
  const std::vector<BytePlace>& byte_places() const { return byte_places_; }

 private:
  // One call of a format: products of one input, and what follows them.
  struct Product {
    std::vector<uint32_t> matmuls;
    int after = -1;  // ADD or GATED_ACT
    int norm = -1;
    bool norm_elsewhere = false;  // the norm's own place was given up before (gather_before_norm)
    int gather = -1;              // GATHER_ROWS whose rows are read where they are
  };

  // Who could write or read bytes of a value: the first that writes, and products.
  struct ByteEnd {
    const Value* value;
    size_t step;          // among steps_, not yet sorted
    const float* norm;    // of a product's input
    uint64_t rows, cols;
    std::function<bool(const float* norm)> takes;
    std::shared_ptr<ByteLink> link;
  };
  std::shared_ptr<ByteLink> byte_end(std::vector<ByteEnd>& ends, const Value& value, const float* norm, uint64_t rows, uint64_t cols,
                                     std::function<bool(const float*)> takes);
  void link_bytes();

  void products(uint32_t op);
  std::vector<Product> gather_products(const std::vector<uint32_t>& members) const;
  bool try_with_norm(const std::vector<Product>& products, uint32_t norm, bool elsewhere);
  void make(Product product);
  bool try_product(const Product& product);
  std::vector<uint32_t> ops_of(const Product& product) const;
  turbo_device_matmul product_args(const Product& product) const;
  const Value& input_of(const Product& product) const;
  bool clear_of_input(const Product& product) const;
  void bare_product(uint32_t matmul);

  // What comes before the rows of a head are used.
  struct Prologue {
    uint32_t raw = 0;  // buffer
    int norm = -1, rope = -1;
  };
  void attention(uint32_t op);
  Prologue prologue(const Value& value, uint32_t reader, uint32_t n_heads) const;
  bool same_rotation(const Prologue& q, const Prologue& k) const;
  bool try_attention(uint32_t attend, int append, const Prologue& q, const Prologue* k);
  void plain_attention(uint32_t attend);

  void plain(uint32_t op);
  void plain_append(uint32_t op);
  void add_step(std::vector<uint32_t> ops, uint32_t anchor, std::vector<uint32_t> reads, std::vector<uint32_t> writes,
                std::function<void(const StepRun&)> enqueue, std::function<uint64_t(uint32_t)> scratch_bytes = {});
  bool logit(uint32_t buffer) const { return p_.buffers[buffer].rows == TURBO_ROWS_LOGIT; }
  uint32_t max_rows(uint32_t buffer) const { return logit(buffer) ? p_.max_logit_rows : p_.max_rows; }

  const turbo_program& p_;
  Flow flow_;
  const bool fuse_;
  std::vector<Step> steps_;
  std::vector<ByteEnd> byte_writers_, byte_readers_;
  std::vector<BytePlace> byte_places_;
  uint32_t n_fused_ = 0;
};

/// Live rows of a buffer's kind.
inline const uint32_t* count_of(const StepRun& run, bool logit) { return run.table.counts + (logit ? 2 : 0); }

}  // namespace turbo::arch_rdna2
