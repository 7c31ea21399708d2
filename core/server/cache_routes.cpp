// Routes that look at live requests and at the prefix cache. On workers: they wait for the engine between two steps.
#include <spdlog/spdlog.h>

#include <algorithm>

#include "server/app.h"
#include "server/chat.h"
#include "text/utf8.h"

namespace turbo::server {
namespace {

ApiError disabled(const char* key) {
  return ApiError{403, "route_disabled", fmt::format("this route is off: {} turns it on", key), {}, {}};
}

const char* state_name(engine::RequestState state) {
  return state == engine::RequestState::waiting ? "waiting" : state == engine::RequestState::prompt ? "prompt" : "generating";
}

bool is_file_name(const std::string& name) {
  return !name.empty() && name.size() <= 128 && name.front() != '.' && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '.' || c == '_' || c == '-';
  });
}

// What went wrong with a file is the caller's to know; where it lies and what the system said is the operator's.
ApiError file_error(const Status& status, const char* no_space) {
  // A name that is not there is the client's affair; clients must not fill the log with it.
  if (status.code() != Code::not_found && status.code() != Code::cancelled)
    spdlog::warn("saved prefix: {}{}{}", status.message(), status.hint().empty() ? "" : "; ", status.hint());
  switch (status.code()) {
    case Code::not_found: return ApiError::not_found("there is no such prefix: not in the cache, or no such file");
    case Code::corrupt_input:
    case Code::invalid_argument: return ApiError{400, "invalid_file", "the file is damaged or no saved prefix: save it again", "filename", {}};
    case Code::unsupported:
      return ApiError{400, "invalid_file", "the file was saved with another model, KV codec or numeric setting", "filename", {}};
    case Code::resource_exhausted: return ApiError{507, "no_space", no_space, {}, {}, false};
    case Code::cancelled: return ApiError::draining();
    default: return ApiError{500, "file_error", "the file could not be read or written: the server's log says why", "filename", {}, false};
  }
}

std::span<const Field> save_fields() {
  static const std::vector<Field> fields{{.name = "filename", .types = kString, .min = 1, .max = 128, .required = true},
                                         {"prompt", kString | kArray},
                                         {.name = "messages", .types = kArray, .min = 1, .max = 4096},
                                         {"tools", kArray, 0, 128},
                                         {"chat_template_kwargs", kObject, 0, 64},
                                         {"cache_salt", kString, 1, 128}};
  return fields;
}

Checked<std::vector<int32_t>> prompt_of(const Json& body, const Backend& backend, const std::atomic<bool>& gone) {
  if (find_field(body, "messages")) {
    TURBO_CHECKED(ChatPromptText prompt, render_conversation(body, backend, backend.context(), &gone));
    return std::move(prompt.ids);
  }
  const Json* prompt = find_field(body, "prompt");
  if (!prompt) return ApiError::missing("prompt");
  if (prompt->is_array()) {
    // Nothing longer than the window can be in the cache.
    if (prompt->size() > backend.context()) return context_exceeded(prompt->size(), backend.context());
    return read_token_ids(*prompt, "prompt", backend.vocab_size());
  }
  const auto tokenizer = backend.tokenizer();
  if (!tokenizer) return ApiError::not_supported("tokenizing with this model");
  const std::string& text = prompt->get_ref<const std::string&>();
  if (const size_t least = (*tokenizer)->least_tokens(text); least > backend.context()) return context_exceeded(least, backend.context());
  return (*tokenizer)->encode(text, {.parse_special = true, .add_special = true, .stop = &gone});
}

}  // namespace

App::Outcome App::slots(const Work& work) {
  if (!profile_.server.expose_slots) return disabled("server.expose_slots");
  const bool with_prompts = profile_.server.expose_slot_prompts;
  const auto requests = work.backend.requests(with_prompts);
  if (!requests) return ApiError::draining();
  Json list = Json::array();
  for (const engine::RequestInfo& r : *requests) {
    Json slot{{"id", r.id},
              {"request", r.name},
              {"state", state_name(r.state)},
              {"is_processing", r.state != engine::RequestState::waiting},
              {"priority", r.priority},
              {"n_ctx", work.backend.context()},
              {"prompt_tokens", r.prompt_tokens},
              {"computed_tokens", r.computed_tokens},
              {"cached_tokens", r.cached_tokens},
              {"generated_tokens", r.generated_tokens},
              {"max_tokens", r.max_tokens},
              {"draft_n", r.drafted},
              {"draft_n_accepted", r.accepted},
              {"preemptions", r.preemptions},
              {"age_ms", r.age_ms}};
    if (const auto tokenizer = work.backend.tokenizer(); with_prompts && tokenizer)
      slot["prompt"] = text::sanitize_utf8((*tokenizer)->decode(r.prompt));
    list.push_back(std::move(slot));
  }
  return to_text(list);
}

App::Outcome App::flush_cache(const Work& work) {
  if (!profile_.server.allow_cache_flush) return disabled("server.allow_cache_flush");
  const auto requests = work.backend.requests(false);
  if (!requests) return ApiError::draining();
  if (!requests->empty()) return ApiError{409, "busy", fmt::format("{} requests are running: try again later", requests->size()), {}, {}};
  const auto flushed = work.backend.flush_prefix_cache();
  if (!flushed) return ApiError::draining();
  return to_text(Json{{"success", true}, {"flushed_blocks", *flushed}});
}

Checked<std::filesystem::path> App::prefix_file(const Work& work) const {
  if (profile_.server.prefix_dir.empty()) return disabled("server.prefix_dir");
  if (!profile_.engine.prefix_cache) return disabled("engine.prefix_cache");
  if (auto error = check_fields(work.body, save_fields())) return std::move(*error);
  const std::string name = get_string(work.body, "filename");
  if (!is_file_name(name)) return ApiError::out_of_range("filename", "a plain name of letters, digits, '.', '_' and '-', not starting with '.'");
  return profile_.server.prefix_dir / name;
}

App::Outcome App::save_prefix(const Work& work) {
  auto file = prefix_file(work);
  if (auto* error = std::get_if<ApiError>(&file)) return std::move(*error);
  auto prompt = prompt_of(work.body, work.backend, work.gone);
  if (auto* error = std::get_if<ApiError>(&prompt)) return std::move(*error);
  const auto saved = work.backend.save_prefix(std::get<std::vector<int32_t>>(prompt), get_string(work.body, "cache_salt"),
                                              std::get<std::filesystem::path>(file));
  if (!saved) return file_error(saved.status(), "no room: free disk space");
  return to_text(Json{{"filename", get_string(work.body, "filename")}, {"n_saved", *saved}});
}

App::Outcome App::restore_prefix(const Work& work) {
  auto file = prefix_file(work);
  if (auto* error = std::get_if<ApiError>(&file)) return std::move(*error);
  const auto restored = work.backend.restore_prefix(get_string(work.body, "cache_salt"), std::get<std::filesystem::path>(file));
  if (!restored) return file_error(restored.status(), "the KV pool has no room for this prefix: wait for running requests, or raise kv.pool_tokens");
  return to_text(Json{{"filename", get_string(work.body, "filename")}, {"n_restored", *restored}});
}

}  // namespace turbo::server
