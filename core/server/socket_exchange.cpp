#include "server/socket_exchange.h"

#include <boost/asio/post.hpp>

#include "base/log.h"

namespace turbo::server {
namespace {

constexpr std::string_view kHeadBegin = "HTTP/1.1 ";  // of every answer

}  // namespace

SocketExchange::SocketExchange(std::shared_ptr<Connection> connection, HttpRequest request, bool keep_alive, bool http11)
    : connection_(std::move(connection)), request_(std::move(request)), keep_alive_(keep_alive), http11_(http11) {
  connection_->owner_.exchange_began();
}

void SocketExchange::respond(HttpResponse response) {
  if (state_ != State::open) return;
  if (on_answer_) on_answer_(response.status);
  const bool bodyless = response.status == 204;
  std::string text = head(response);
  if (!bodyless) text += fmt::format("content-length: {}\r\n", response.body.size());
  text += "\r\n";
  if (!bodyless && request_.method != "HEAD") text += response.body;
  finish(std::move(text));
}

void SocketExchange::start_stream(HttpResponse response) {
  if (state_ != State::open) return;
  state_ = State::streaming;
  if (on_answer_) on_answer_(response.status);
  if (!http11_) keep_alive_ = false;  // the end of the connection is the end of the body
  std::string text = head(response);
  text += http11_ ? "transfer-encoding: chunked\r\n\r\n" : "\r\n";
  filler_ = std::move(response.body);
  connection_->send(std::move(text));
}

void SocketExchange::write(std::string_view part) {
  if (state_ != State::streaming || part.empty()) return;
  if (connection_->out_bytes_ > connection_->limits_.stream_queue_bytes) {
    log_request(spdlog::level::warn, request_.id, "the client does not read its stream, {} bytes wait: given up", connection_->out_bytes_);
    const auto keep = connection_;
    keep->close();
    return;
  }
  connection_->send(http11_ ? fmt::format("{:x}\r\n{}\r\n", part.size(), part) : std::string(part));
}

void SocketExchange::end_stream() {
  if (state_ == State::streaming) finish(http11_ ? "0\r\n\r\n" : "");
}

void SocketExchange::set_timer(uint64_t ms, std::function<void()> action) {
  if (state_ == State::over) return;
  Connection& c = *connection_;
  const uint64_t round = ++c.action_round_;
  c.action_timer_.expires_after(std::chrono::milliseconds(ms));
  c.action_timer_.async_wait([self = shared_from_this(), round, action = std::move(action)](boost::system::error_code ec) {
    if (!ec && self->state_ != State::over && self->connection_->action_round_ == round) action();
  });
}

void SocketExchange::post(std::function<void()> action) { boost::asio::post(connection_->executor(), std::move(action)); }

void SocketExchange::lost() {
  if (state_ == State::over) return;
  const auto keep = shared_from_this();
  state_ = State::over;
  stop_timer();
  const auto action = std::exchange(on_gone_, nullptr);
  if (action) action();
  end();
}

void SocketExchange::probe() {
  if (state_ == State::streaming) return write(filler_);
  if (state_ == State::open && n_probed_ < kHeadBegin.size()) connection_->send(std::string(1, kHeadBegin[n_probed_++]));
}

// Without what probes have sent of it.
std::string SocketExchange::head(const HttpResponse& response) const {
  std::string text = fmt::format("{}{} {}\r\n", kHeadBegin.substr(n_probed_), response.status, reason_phrase(response.status));
  if (response.status != 204) text += fmt::format("content-type: {}\r\n", response.content_type);
  text += fmt::format("x-request-id: {}\r\n", request_.id);
  for (const Headers* list : {&response.headers, &extra_})
    for (const auto& [name, value] : *list) text += fmt::format("{}: {}\r\n", name, value);
  text += keep_alive_ ? (http11_ ? "" : "connection: keep-alive\r\n") : "connection: close\r\n";
  return text;
}

void SocketExchange::finish(std::string last) {
  const auto keep = shared_from_this();
  state_ = State::over;
  stop_timer();
  on_gone_ = nullptr;
  if (!last.empty()) connection_->send(std::move(last));
  connection_->answer_complete(!keep_alive_);
  end();
}

void SocketExchange::stop_timer() {
  ++connection_->action_round_;
  connection_->action_timer_.cancel();
}

void SocketExchange::end() {
  if (!std::exchange(ended_, true)) connection_->owner_.exchange_ended();
  on_answer_ = nullptr;
}

}  // namespace turbo::server
