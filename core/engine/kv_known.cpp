#include "engine/kv_known.h"

#include <dlfcn.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <span>

#include "engine/kv_check.h"
#include "loader/text.h"

namespace turbo::engine {
namespace {

// Raised when the same keys would be judged otherwise: another way of taking means or of measuring divergence.
constexpr std::string_view kJudgement = "turbo keys 1";

// The build of the library that a table is in: a version need not change when code does.
void add_library(Sha256& sum, const void* table) {
  Dl_info where{};
  struct stat facts {};
  const bool found = table && ::dladdr(table, &where) != 0 && where.dli_fname && ::stat(where.dli_fname, &facts) == 0;
  const int64_t told[] = {found ? facts.st_size : 0, found ? facts.st_mtim.tv_sec : 0, found ? facts.st_mtim.tv_nsec : 0};
  sum.add(std::as_bytes(std::span(told)));
}

void add_codec(Sha256& sum, std::string_view label, const loader::Component<turbo_kv_codec>& codec) {
  const uint64_t told = codec.table->fingerprint(codec.self);
  sum.add_text(label);
  sum.add(std::as_bytes(std::span(&told, 1)));
  add_library(sum, codec.table);
}

Status use_everywhere(loader::Resolution& resolution, uint32_t n_layers, const std::string& name) {
  for (uint32_t layer = 0; layer < n_layers; ++layer)
    for (const uint32_t side : {TURBO_KV_SIDE_K, TURBO_KV_SIDE_V}) TURBO_RETURN_IF_ERROR(resolution.use_codec(side, layer, name));
  return Status::ok();
}

}  // namespace

KnownKeys::KnownKeys(loader::Resolution& resolution, const model::ModelConfig& config, const KvLook& how)
    : resolution_(resolution), config_(config), how_(how), records_(how.records), tokens_(observed_tokens(how.tokenizer, config.vocab_size)) {}

Status KnownKeys::open(bool centers, const std::filesystem::path& center_file) {
  centered_ = centers;
  record_.shape = {config_.n_layers, config_.n_kv_heads, config_.head_dim_k};
  record_.conditions = conditions();
  const bool named = centers && !center_file.empty();
  if (!named && how_.records.empty()) return Status::ok();
  const Result<Sha256::Value> model = how_.model_digest ? how_.model_digest() : Status(Code::unsupported, "the model's files have no digest");
  if (!model) {
    records_ = KvRecords({});
    spdlog::debug("KV cache: nothing is remembered of this model: {}", model.status().message());
    return named ? model.status().with_context("kv.options.center") : Status::ok();
  }
  record_.model = *model;
  if (named) {
    TURBO_ASSIGN(named_, read_center_file(center_file, record_.shape, *model));
  }
  if (std::optional<KvRecord> known = records_.recall(record_)) record_ = *std::move(known);
  else if (named_ && named_->conditions == record_.conditions) record_ = *named_;
  return Status::ok();
}

// All that decides what is observed, beside the model: the text as tokens, and the code that works on them.
Sha256::Value KnownKeys::conditions() const {
  Sha256 sum;
  sum.add_text(kJudgement);
  sum.add(std::as_bytes(std::span(tokens_)));
  sum.add_text(how_.activations);
  sum.add_text(loader::tier_name(resolution_.tier()));
  for (const loader::Report::Slot& slot : resolution_.report().slots) {
    if (!slot.chosen || (slot.slot != "arch_pack" && !slot.slot.starts_with("weight_format:"))) continue;
    for (const std::string& text : {slot.slot, slot.chosen->plugin, slot.chosen->version, slot.chosen->component}) sum.add_text(text);
  }
  for (const auto& [type, bytes] : config_.bytes_by_type) add_library(sum, resolution_.weight_format(type).table);
  add_library(sum, resolution_.arch_pack().table);
  for (const uint32_t side : {TURBO_KV_SIDE_K, TURBO_KV_SIDE_V}) add_codec(sum, kExactCodec, resolution_.spare_codec(side, kExactCodec));
  return sum.finish();
}

Status KnownKeys::observe() {
  TURBO_RETURN_IF_ERROR(use_everywhere(resolution_, config_.n_layers, kExactCodec));
  TURBO_ASSIGN(const model::BuildStep build_step, model::find_family(config_.architecture));
  Result<KvObservation> seen =
      observe_attention({resolution_.arch_pack().table, resolution_.arch_pack().self}, config_, how_.weights, build_step, tokens_);
  TURBO_RETURN_IF_ERROR(use_everywhere(resolution_, config_.n_layers, ""));
  TURBO_RETURN_IF_ERROR(seen.status());
  seen_ = std::move(*seen);
  if (record_.centers.empty()) record_.centers = to_halves(key_centers(*seen_));
  return Status::ok();
}

const Sha256::Value& KnownKeys::codec_key(const std::string& label, const loader::Component<turbo_kv_codec>& codec) {
  const auto [found, added] = keys_.try_emplace({codec.self, label});
  if (added) {
    Sha256 sum;
    add_codec(sum, label, codec);
    if (centered_) sum.add(std::as_bytes(std::span(centers())));
    found->second = sum.finish();
  }
  return found->second;
}

Result<std::optional<double>> KnownKeys::divergence(const std::string& label, const loader::Component<turbo_kv_codec>& codec, uint32_t layer) {
  const Sha256::Value& key = codec_key(label, codec);
  if (const std::optional<double> known = record_.divergence(key, layer)) return known;
  if (!seen_) return std::optional<double>();
  TURBO_ASSIGN(const double found, attention_divergence(codec, *seen_, layer));
  record_.set_divergence(key, layer, found);
  return std::optional(found);
}

std::filesystem::path KnownKeys::keep() const { return records_.remember(record_) ? path() : std::filesystem::path(); }

}  // namespace turbo::engine
