#include "server/app.h"

#include <algorithm>
#include <thread>

#include "base/log.h"
#include "server/chat.h"
#include "server/completions.h"

namespace turbo::server {
namespace {

constexpr size_t kSmallBody = 64 << 10;  // bytes; read in well under a millisecond
constexpr size_t kHugeBody = 1 << 20;    // may take hundreds of megabytes while it is tokenized

uint32_t worker_threads() { return std::clamp(std::thread::hardware_concurrency() / 2, 2u, 4u); }

}  // namespace

struct App::Route {
  enum class Prefix { optional, required, none };  // of /v1
  const char* path;  // without /v1; a final '/' takes any non-empty rest
  Prefix prefix;
  const char* method;
  const char* name;  // the metrics' label
  std::variant<void (App::*)(Call&), Outcome (App::*)(const Work&)> handler;  // at once, or on a worker
  bool open = false;       // needs no key
  bool while_loading = false;
  bool while_draining = false;  // of POST routes; GET ones always answer
};

const std::vector<App::Route>& App::routes() {
  using P = Route::Prefix;
  static const std::vector<Route> routes{
      {"/health", P::optional, "GET", "health", &App::health, true, true},
      {"/models", P::optional, "GET", "models", &App::models},
      {"/models/", P::optional, "GET", "model", &App::model},
      {"/chat/completions", P::optional, "POST", "chat", &App::chat},
      {"/chat/completions/input_tokens", P::optional, "POST", "input_tokens", &App::count_chat},
      {"/completions", P::required, "POST", "completions", &App::completions},
      {"/completions", P::none, "POST", "completion", &App::not_supported},
      {"/completion", P::none, "POST", "completion", &App::not_supported},
      {"/responses", P::optional, "POST", "responses", &App::not_supported},
      {"/responses/input_tokens", P::optional, "POST", "input_tokens", &App::not_supported},
      {"/embeddings", P::optional, "POST", "embeddings", &App::not_supported},
      {"/messages", P::required, "POST", "messages", &App::not_supported},
      {"/messages/count_tokens", P::required, "POST", "messages", &App::not_supported},
      {"/tokenize", P::none, "POST", "tokenize", &App::tokenize},
      {"/detokenize", P::none, "POST", "detokenize", &App::detokenize},
      {"/apply-template", P::none, "POST", "apply_template", &App::apply_template},
      {"/cancel", P::optional, "POST", "cancel", &App::cancel, false, false, true},
      {"/metrics", P::none, "GET", "metrics", &App::metrics},
      {"/props", P::none, "GET", "props", &App::props},
      {"/slots", P::none, "GET", "slots", &App::slots},
      {"/abort_request", P::none, "POST", "cancel", &App::abort_request, false, false, true},
      {"/flush_cache", P::none, "POST", "flush_cache", &App::flush_cache},
      {"/prefix/save", P::none, "POST", "prefix", &App::save_prefix},
      {"/prefix/restore", P::none, "POST", "prefix", &App::restore_prefix},
      {"/version", P::none, "GET", "version", &App::version},
      {"/", P::none, "GET", "page", &App::page, true, true},
  };
  return routes;
}

const App::Route* App::find_route(std::string_view path, std::string& tail) {
  const bool prefixed = path.starts_with("/v1/");
  const std::string_view rest = prefixed ? path.substr(3) : path;
  for (const Route& route : routes()) {
    if (prefixed ? route.prefix == Route::Prefix::none : route.prefix == Route::Prefix::required) continue;
    const std::string_view own = route.path;
    if (rest == own) return &route;
    if (own.size() > 1 && own.back() == '/' && rest.size() > own.size() && rest.starts_with(own)) {
      tail = rest.substr(own.size());
      return &route;
    }
  }
  return nullptr;
}

App::App(const profile::Profile& profile)
    : profile_(profile),
      requests_total_(prometheus::BuildCounter().Name("turbo_requests_total").Help("Requests answered.").Register(registry_)),
      workers_(worker_threads(), static_cast<size_t>(std::max(1, static_cast<int>(profile.server.max_queue)))) {
  limits_.max_queue = static_cast<uint32_t>(profile.server.max_queue);
  limits_.request_timeout_ms = profile.server.request_timeout_ms;
  limits_.lenient_model = profile.server.lenient_model;
  limits_.fingerprint = fmt::format("turbo-{}-{:016x}", TURBO_VERSION, profile::fingerprint(profile));
}

void App::set_access(AccessRules rules) { access_ = std::move(rules); }

void App::attach(std::shared_ptr<Backend> backend) {
  std::lock_guard lock(mutex_);
  backend_ = std::move(backend);
}

std::shared_ptr<Backend> App::backend() const {
  std::lock_guard lock(mutex_);
  return backend_;
}

void App::handle(const std::shared_ptr<Exchange>& exchange) {
  try {
    dispatch(exchange);
  } catch (const std::exception& e) {
    log_request(spdlog::level::err, exchange->request().id, "{}", e.what());
    exchange->respond(error_response(ApiError::internal()));
  }
}

void App::dispatch(const std::shared_ptr<Exchange>& exchange) {
  const HttpRequest& request = exchange->request();
  const std::optional<std::string> path = percent_decode(split_target(request.target).path);
  std::string tail;
  const Route* route = path && !request.refusal ? find_route(*path, tail) : nullptr;
  exchange->on_answer([this, name = route ? route->name : "other", id = request.id](int status) {
    count(name, status);
    log_request(spdlog::level::debug, id, "{} {}", name, status);
  });

  if (request.refusal) return respond(exchange, ApiError{request.refusal->status, request.refusal->code, request.refusal->message, {}, {}});
  if (auto error = check_host(request, access_)) return respond(exchange, *error);
  add_cors(exchange);
  if (request.method == "OPTIONS") return preflight(exchange, route);
  if (!origin_allowed(request, access_))
    return respond(exchange, ApiError{403, "origin_not_allowed", "pages of this origin may not call this server: server.cors_origins lists those that may", {}, {}});
  if (!access_.keys.empty() && !(route && route->open) && !key_valid(request, access_))
    return respond(exchange, ApiError{401, "invalid_api_key", "a valid API key is needed: Authorization: Bearer KEY", {}, {}});
  if (!route) return respond(exchange, ApiError::not_found("there is nothing at this path"));
  if (request.method != route->method && !(request.method == "HEAD" && std::string_view(route->method) == "GET")) {
    exchange->add_header("allow", std::string_view(route->method) == "GET" ? "GET, HEAD, OPTIONS" : "POST, OPTIONS");
    return respond(exchange, ApiError{405, "method_not_allowed", fmt::format("this path takes {}", route->method), {}, {}});
  }

  Call call{exchange, backend(), std::move(tail)};
  if (!call.backend && !route->while_loading) return respond(exchange, ApiError::loading());
  if (std::string_view(route->method) == "POST") {
    if (const Status failure = call.backend->failure(); !failure.is_ok()) return respond(exchange, ApiError::unavailable(failure));
    if (draining_ && !route->while_draining) return respond(exchange, ApiError::draining());
    if (const std::string* encoding = request.header("content-encoding"); encoding && *encoding != "identity")
      return respond(exchange, ApiError{415, "unsupported_encoding", "compressed bodies are not supported", {}, {}});
    if (const std::string* type = request.header("content-type")) {
      std::string essence = type->substr(0, type->find(';'));
      while (!essence.empty() && (essence.back() == ' ' || essence.back() == '\t')) essence.pop_back();
      std::transform(essence.begin(), essence.end(), essence.begin(), [](unsigned char c) { return std::tolower(c); });
      if (essence != "application/json")
        return respond(exchange, ApiError{415, "unsupported_media_type", "the body must be application/json", {}, {}});
    }
  }
  if (const auto* now = std::get_if<void (App::*)(Call&)>(&route->handler)) return (this->**now)(call);
  hand_over(call, *route);
}

void App::hand_over(const Call& call, const Route& route) {
  const auto exchange = call.exchange;
  const auto gone = std::make_shared<std::atomic<bool>>(false);
  exchange->on_gone([gone] { *gone = true; });
  const auto body = std::make_shared<std::string>(std::move(exchange->request().body));
  const Workers::Size size = body->size() > kHugeBody    ? Workers::Size::huge
                             : body->size() > kSmallBody ? Workers::Size::large
                                                         : Workers::Size::small;
  const bool taken = workers_.submit(size, [this, exchange, gone, body, &route, backend = call.backend] {
    if (*gone) return;
    const auto outcome = std::make_shared<Outcome>(compute(route, std::move(*body), *backend, *gone));
    exchange->post([this, exchange, gone, backend, outcome] {
      if (!*gone) deliver(exchange, backend, std::move(*outcome));
    });
  });
  if (!taken) respond(exchange, ApiError{429, "queue_full", "too many requests wait to be read: try again later", {}, {}});
}

// [worker]
App::Outcome App::compute(const Route& route, std::string text, Backend& backend, const std::atomic<bool>& gone) try {
  Result<Json> body = std::string_view(route.method) == "GET" ? Json::object() : parse_json(text, profile_.server.json_depth_limit);
  std::string().swap(text);
  if (!body) return ApiError{400, "invalid_json", body.status().message(), {}, {}};
  if (!body->is_object()) return ApiError::invalid_type("", "a JSON object");
  return (this->*std::get<Outcome (App::*)(const Work&)>(route.handler))({*body, backend, gone});
} catch (const std::exception& e) {
  spdlog::error("{}: {}", route.path, e.what());
  return ApiError::internal();
}

// [strand]
void App::deliver(const std::shared_ptr<Exchange>& exchange, const std::shared_ptr<Backend>& backend, Outcome outcome) try {
  if (const auto* error = std::get_if<ApiError>(&outcome)) return respond(exchange, *error);
  if (auto* json = std::get_if<std::string>(&outcome)) return respond_text(exchange, std::move(*json));
  GenerationPlan& plan = std::get<GenerationPlan>(outcome);
  const uint64_t client = client_of(exchange->request(), access_);
  for (GenerationPlan::Part& part : plan.parts) part.request.client = client;
  generate(exchange, backend, std::move(plan));
} catch (const std::exception& e) {
  log_request(spdlog::level::err, exchange->request().id, "{}", e.what());
  exchange->respond(error_response(ApiError::internal()));
}

void App::respond(const std::shared_ptr<Exchange>& exchange, const ApiError& error) {
  if (error.status >= 500 && error.status != 501 && error.status != 503)
    log_request(spdlog::level::err, exchange->request().id, "{} {}", error.status, error.message);
  exchange->respond(error_response(error));
}

void App::respond(const std::shared_ptr<Exchange>& exchange, const Json& body) {
  respond_text(exchange, to_text(body));
}

void App::respond_text(const std::shared_ptr<Exchange>& exchange, std::string json) {
  HttpResponse response;
  response.body = std::move(json);
  exchange->respond(std::move(response));
}

void App::add_cors(const std::shared_ptr<Exchange>& exchange) {
  const HttpRequest& request = exchange->request();
  const std::string* origin = request.header("origin");
  if (!origin || !origin_allowed(request, access_)) return;
  exchange->add_header("access-control-allow-origin", *origin);
  exchange->add_header("access-control-expose-headers", "x-request-id, retry-after, retry-after-ms, x-should-retry");
  exchange->add_header("vary", "Origin");
}

void App::preflight(const std::shared_ptr<Exchange>& exchange, const Route* route) {
  const HttpRequest& request = exchange->request();
  HttpResponse response;
  response.status = 204;
  const std::string methods = !route ? "GET, HEAD, POST, OPTIONS" : std::string_view(route->method) == "GET" ? "GET, HEAD, OPTIONS" : "POST, OPTIONS";
  response.headers.emplace_back("allow", methods);
  if (request.header("origin") && origin_allowed(request, access_)) {
    response.headers.emplace_back("access-control-allow-methods", methods);
    const std::string* wanted = request.header("access-control-request-headers");
    response.headers.emplace_back("access-control-allow-headers", wanted ? *wanted : "authorization, content-type, x-api-key");
    response.headers.emplace_back("access-control-max-age", "600");
  }
  exchange->respond(std::move(response));
}

void App::count(const char* route, int status) {
  requests_total_.Add({{"route", route}, {"status", std::to_string(status)}}).Increment();
}

void App::generate(const std::shared_ptr<Exchange>& exchange, const std::shared_ptr<Backend>& backend, GenerationPlan plan) {
  const std::string id = plan.answer.id;
  const Generation::Context context{backend, live_, *backend->tokenizer(), profile_.server.sse_ping_ms};
  auto generation = std::make_shared<Generation>(exchange, context, std::move(plan));
  {
    std::lock_guard lock(mutex_);
    // Ended ones are swept when the table has doubled, which keeps it within twice of what is alive.
    if (generations_.size() >= sweep_at_) {
      std::erase_if(generations_, [](const auto& entry) { return entry.second.expired(); });
      sweep_at_ = 64 + 2 * generations_.size();
    }
    generations_.emplace(id, generation);
  }
  generation->start();
}

namespace {

template <typename Alternative>
std::variant<std::string, GenerationPlan, ApiError> widened(Checked<Alternative> checked) {
  return std::visit([](auto& given) { return std::variant<std::string, GenerationPlan, ApiError>(std::move(given)); }, checked);
}

}  // namespace

App::Outcome App::chat(const Work& work) { return widened(plan_chat(work.body, work.backend, limits_)); }
App::Outcome App::completions(const Work& work) { return widened(plan_completion(work.body, work.backend, limits_)); }

void App::not_supported(Call& call) { respond(call.exchange, ApiError::not_supported("this route")); }

App::Outcome App::cancel(const Work& work) { return cancel_by(work, "id"); }
App::Outcome App::abort_request(const Work& work) { return cancel_by(work, "rid"); }

App::Outcome App::cancel_by(const Work& work, const char* field) {
  const std::vector<Field> table{{.name = field, .types = kString, .required = true}};
  if (auto error = check_fields(work.body, table)) return std::move(*error);
  std::shared_ptr<Generation> generation;
  {
    std::lock_guard lock(mutex_);
    const auto found = generations_.find(get_string(work.body, field));
    if (found != generations_.end()) generation = found->second.lock();
  }
  return to_text(Json{{"cancelled", generation && generation->cancel()}});
}

}  // namespace turbo::server
