#include "model/weights.h"

#include "base/abi_error.h"

namespace turbo::model {

WeightSet::~WeightSet() {
  for (auto& [name, weight] : weights_) pack_.api->weight_free(pack_.self, weight);
  if (rope_) pack_.api->weight_free(pack_.self, rope_);
}

Status WeightSet::load_one(const Tensor& tensor, const ModelFile& file) {
  turbo_weight_source source{};
  source.struct_size = sizeof source;
  source.type = tensor.type;
  source.name = tensor.name.c_str();
  source.cols = tensor.dims.empty() ? 1 : tensor.dims[0];
  source.rows = tensor.dims.size() > 1 ? tensor.dims[1] : 1;
  source.data = tensor.data;
  source.bytes = tensor.bytes;
  source.shard = {0, 1, 0};
  turbo_weight* weight = nullptr;
  AbiError failure;
  TURBO_RETURN_IF_ERROR(failure.check(pack_.api->weight_load(pack_.self, &source, &weight, failure.out()),
                                      "tensor '" + tensor.name + "'"));
  weights_.emplace(tensor.name, weight);
  resident_bytes_ += pack_.api->weight_bytes(pack_.self, weight);
  if (!pack_.api->weight_in_place(pack_.self, weight)) file.drop_pages(tensor);
  return Status::ok();
}

Status WeightSet::load(const ModelFile& file, const ModelConfig& config, const LoadProgress& progress) {
  uint64_t total = 0, done = 0;
  for (const Tensor& tensor : file.tensors()) total += tensor.bytes;
  for (const Tensor& tensor : file.tensors()) {
    if (tensor.name != "rope_freqs.weight") TURBO_RETURN_IF_ERROR(load_one(tensor, file));
    done += tensor.bytes;
    if (progress) progress(done, total);
  }
  const std::vector<float> frequencies = config.rope.inverse_frequencies();
  turbo_weight_source source{};
  source.struct_size = sizeof source;
  source.type = TURBO_TYPE_F32;
  source.name = "rope_frequencies";
  source.rows = 1;
  source.cols = frequencies.size();
  source.data = frequencies.data();
  source.bytes = frequencies.size() * sizeof(float);
  source.shard = {0, 1, 0};
  AbiError failure;
  return failure.check(pack_.api->weight_load(pack_.self, &source, &rope_, failure.out()), "rope frequencies");
}

const turbo_weight* WeightSet::find(std::string_view name) const {
  const auto found = weights_.find(std::string(name));
  return found == weights_.end() ? nullptr : found->second;
}

const turbo_weight* WeightSet::layer(uint32_t layer, std::string_view suffix) const {
  return find(fmt::format("blk.{}.{}", layer, suffix));
}

}  // namespace turbo::model
