// One request on a connection and the bytes of its answer. Used on the connection's strand, but for post().
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "server/connection.h"
#include "server/http.h"

namespace turbo::server {

class SocketExchange : public Exchange, public std::enable_shared_from_this<SocketExchange> {
 public:
  SocketExchange(std::shared_ptr<Connection> connection, HttpRequest request, bool keep_alive, bool http11);
  ~SocketExchange() override { end(); }

  HttpRequest& request() override { return request_; }
  void add_header(std::string name, std::string value) override { extra_.emplace_back(std::move(name), std::move(value)); }
  void respond(HttpResponse response) override;
  void start_stream(HttpResponse response) override;
  void write(std::string_view part) override;
  void end_stream() override;
  void set_timer(uint64_t ms, std::function<void()> action) override;
  void on_gone(std::function<void()> action) override { on_gone_ = std::move(action); }
  void on_answer(std::function<void(int)> action) override { on_answer_ = std::move(action); }
  void post(std::function<void()> action) override;

  /// The connection closed under this exchange.
  void lost();
  bool over() const { return state_ == State::over; }
  /// Sends something that changes nothing for the client: the next byte of what every answer begins with, or a
  /// stream's filler. Nothing when there is none left.
  void probe();

 private:
  enum class State { open, streaming, over };

  std::string head(const HttpResponse& response) const;
  void finish(std::string last);
  void stop_timer();
  void end();

  const std::shared_ptr<Connection> connection_;
  HttpRequest request_;
  bool keep_alive_;
  const bool http11_;
  Headers extra_;
  State state_ = State::open;
  bool ended_ = false;
  size_t n_probed_ = 0;  // bytes of the answer's head that are sent already
  std::string filler_;
  std::function<void()> on_gone_;
  std::function<void(int)> on_answer_;
};

}  // namespace turbo::server
