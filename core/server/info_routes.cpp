// Routes that describe the server.
#include <prometheus/text_serializer.h>
#include <turbo/abi/base.h>

#include "server/app.h"

namespace turbo::server {
namespace {

Json model_json(const Backend& backend) {
  return Json{{"id", backend.model_name()}, {"object", "model"}, {"created", 0}, {"owned_by", "turbo"},
              {"max_model_len", backend.context()}};
}

}  // namespace

void App::health(Call& call) {
  if (call.backend)
    if (const Status failure = call.backend->failure(); !failure.is_ok()) return respond(call.exchange, ApiError::unavailable(failure));
  if (draining_) return respond(call.exchange, ApiError::draining());
  if (!call.backend) return respond(call.exchange, ApiError::loading());
  respond(call.exchange, Json{{"status", "ok"}});
}

void App::models(Call& call) {
  respond(call.exchange, Json{{"object", "list"}, {"data", Json::array({model_json(*call.backend)})}});
}

void App::model(Call& call) {
  if (call.tail == call.backend->model_name()) return respond(call.exchange, model_json(*call.backend));
  ApiError error = ApiError::not_found("the model '" + call.tail + "' does not exist here", "model_not_found");
  error.param = "model";
  respond(call.exchange, error);
}

void App::version(Call& call) {
  respond(call.exchange, Json{{"version", TURBO_VERSION}, {"abi", fmt::format("{}.{}", TURBO_ABI_MAJOR, TURBO_ABI_MINOR)}});
}

void App::props(Call& call) {
  const Backend& backend = *call.backend;
  const profile::Profile::Server& server = profile_.server;
  const engine::Sampling sampling = backend.default_sampling();
  const auto chat_template = backend.chat_template();
  Json body{{"model_alias", backend.model_name()},
            {"chat_template", chat_template ? (*chat_template)->source() : ""},
            {"total_slots", backend.max_running()},
            {"n_ctx", backend.context()},
            {"default_generation_settings",
             {{"temperature", sampling.temperature}, {"top_k", sampling.top_k}, {"top_p", sampling.top_p},
              {"min_p", sampling.min_p}, {"repeat_penalty", sampling.repetition_penalty},
              {"presence_penalty", sampling.presence_penalty}, {"frequency_penalty", sampling.frequency_penalty}}},
            {"modalities", {{"vision", false}, {"audio", false}}},
            {"build_info", std::string("turbo ") + TURBO_VERSION},
            {"limits",
             {{"body_bytes", server.body_limit_bytes}, {"header_bytes", server.header_limit_bytes},
              {"header_count", server.header_limit_count}, {"request_line_bytes", server.request_line_limit_bytes},
              {"json_depth", server.json_depth_limit}, {"idle_timeout_ms", server.idle_timeout_ms},
              {"request_timeout_ms", server.request_timeout_ms}, {"max_queue", server.max_queue},
              {"max_connections", server.max_connections}, {"tokenize_bytes", kTokenizeBytes}}},
            {"cache", backend.cache()},
            {"plugins", backend.plugins()}};
  if (server.expose_paths) body["model_path"] = backend.model_path();
  respond(call.exchange, body);
}

void App::metrics(Call& call) {
  std::vector<prometheus::MetricFamily> families = call.backend->metrics();
  for (prometheus::MetricFamily& family : registry_.Collect()) families.push_back(std::move(family));
  HttpResponse response;
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  response.body = prometheus::TextSerializer().Serialize(families);
  call.exchange->respond(std::move(response));
}

void App::page(Call& call) {
  if (!profile_.server.web_page) return respond(call.exchange, ApiError::not_found("the built-in page is turned off"));
  HttpResponse response;
  response.content_type = "text/html; charset=utf-8";
  response.body = call.backend ? kWebPage : kLoadingPage;
  response.headers = {{"cache-control", "no-cache"},
                      {"x-content-type-options", "nosniff"},
                      {"x-frame-options", "DENY"},
                      {"content-security-policy",
                       "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; img-src data:"}};
  call.exchange->respond(std::move(response));
}

}  // namespace turbo::server
