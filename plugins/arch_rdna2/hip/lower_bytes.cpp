// Bytes between steps: a step that makes a value also writes its bytes, made with the norm of the products that read it,
// where both ends take that. Whoever wants another norm, or no bytes, reads the floats.
#include "lower.h"

namespace turbo::arch_rdna2 {

/// The end belongs to the step that is added next.
std::shared_ptr<ByteLink> Lowering::byte_end(std::vector<ByteEnd>& ends, const Value& value, const float* norm, uint64_t rows, uint64_t cols,
                                             std::function<bool(const float*)> takes) {
  ends.push_back({&value, steps_.size(), norm, rows, cols, std::move(takes), std::make_shared<ByteLink>()});
  return ends.back().link;
}

void Lowering::link_bytes() {
  for (ByteEnd& writer : byte_writers_) {
    if (writer.cols % TURBO_DEVICE_Q8_TILE != 0) continue;
    std::vector<ByteEnd*> readers;
    for (ByteEnd& reader : byte_readers_) {
      const bool fits = reader.value == writer.value && reader.rows == writer.rows && reader.cols == writer.cols;
      if (fits && (readers.empty() || reader.norm == readers[0]->norm) && reader.takes(reader.norm)) readers.push_back(&reader);
    }
    if (readers.empty() || !writer.takes(readers[0]->norm)) continue;
    const ByteLink link{p_.n_buffers + static_cast<uint32_t>(byte_places_.size()), writer.rows, readers[0]->norm};
    byte_places_.push_back({writer.rows, writer.cols});
    *writer.link = link;
    steps_[writer.step].writes.push_back(link.place);
    for (ByteEnd* reader : readers) {
      *reader->link = link;
      steps_[reader->step].reads.push_back(link.place);
    }
  }
}

}  // namespace turbo::arch_rdna2
