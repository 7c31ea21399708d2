// The only translation unit that sees Asio and Beast. Beast parses; reading, limits, deadlines and writing are here, so
// that every byte held for a client is counted. It is longer than most files because those headers are slow to compile.
#include "server/transport.h"

#include <spdlog/spdlog.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <unordered_map>

namespace turbo::server {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

constexpr size_t kReadBytes = 16 << 10;
constexpr size_t kPipelineBytes = 64 << 10;  // read ahead while a request is being answered
constexpr size_t kLingerBytes = 8 << 20;     // discarded from a refused client, so that it can read why
constexpr uint64_t kLingerMs = 2000;

bool equals_ignoring_case(std::string_view a, std::string_view b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](unsigned char x, unsigned char y) {
           return std::tolower(x) == std::tolower(y);
         });
}

bool is_visible_id(std::string_view id) {
  return !id.empty() && id.size() <= 128 && std::all_of(id.begin(), id.end(), [](char c) { return c > ' ' && c < 0x7f; });
}

}  // namespace

class Connection;

struct Transport::Impl : std::enable_shared_from_this<Transport::Impl> {
  explicit Impl(const TransportLimits& limits, ExchangeHandler handler)
      : limits(limits), handler(std::move(handler)), acceptor(io), retry(io) {}

  Status bind(const std::string& host, uint16_t port);
  void accept();
  void close_all();
  void exchange_began() { n_exchanges.fetch_add(1); }
  void exchange_ended() {
    std::lock_guard lock(mutex);
    if (n_exchanges.fetch_sub(1) == 1) idle.notify_all();
  }

  const TransportLimits limits;
  const ExchangeHandler handler;
  std::string address;
  uint16_t port = 0;
  bool loopback = false;

  std::mutex mutex;
  std::condition_variable idle;
  std::unordered_map<Connection*, std::weak_ptr<Connection>> connections;  // guarded by mutex
  bool closing = false;                                                    // guarded by mutex
  std::atomic<uint32_t> n_exchanges{0};
  std::atomic<uint64_t> body_bytes{0};

  // After what connections use in their destructors: the context destroys those that are left.
  asio::io_context io;
  tcp::acceptor acceptor;
  asio::steady_timer retry;
  std::vector<std::thread> threads;
};

// One client. All members are used on the socket's strand only.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Transport::Impl& owner, tcp::socket socket)
      : owner_(owner), limits_(owner.limits), socket_(std::move(socket)), deadline_(socket_.get_executor()),
        action_timer_(socket_.get_executor()) {}
  ~Connection();

  void start();
  void close();
  auto executor() { return socket_.get_executor(); }

 private:
  friend class SocketExchange;
  enum class Waiting { nothing, idle, request, write, linger };

  void read_more();
  void on_read(error_code ec, size_t n);
  void parse();
  bool parse_header();
  bool check_header();
  bool parse_body();
  void dispatch();
  void refuse(int status, std::string code, std::string message);
  void refuse_parse(error_code ec);
  void hold_body(uint64_t bytes);

  void send(std::string bytes);
  void write_some();
  void on_written(error_code ec, size_t n);
  void answer_complete(bool close);
  void next_or_close();
  void linger();

  void set_deadline(Waiting what, uint64_t ms);
  void on_deadline();

  Transport::Impl& owner_;  // outlives the connections: closes and destroys them
  const TransportLimits& limits_;
  tcp::socket socket_;
  asio::steady_timer deadline_, action_timer_;
  uint64_t deadline_round_ = 0, action_round_ = 0;
  Waiting waiting_ = Waiting::nothing;
  std::chrono::steady_clock::time_point request_began_;

  std::array<char, kReadBytes> incoming_;
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::string_body>> parser_;
  bool header_checked_ = false, line_parsed_ = false, reading_ = false, closed_ = false;
  uint64_t held_body_bytes_ = 0;

  std::shared_ptr<class SocketExchange> exchange_;
  std::deque<std::string> out_;
  size_t out_offset_ = 0, out_bytes_ = 0, lingered_ = 0;
  bool writing_ = false, answered_ = false, close_after_ = false, lingering_ = false;
};

class SocketExchange : public Exchange, public std::enable_shared_from_this<SocketExchange> {
 public:
  SocketExchange(std::shared_ptr<Connection> connection, HttpRequest request, bool keep_alive, bool http11)
      : connection_(std::move(connection)), request_(std::move(request)), keep_alive_(keep_alive), http11_(http11) {
    connection_->owner_.exchange_began();
  }
  ~SocketExchange() override { end(); }

  HttpRequest& request() override { return request_; }
  void add_header(std::string name, std::string value) override { extra_.emplace_back(std::move(name), std::move(value)); }

  void respond(HttpResponse response) override {
    if (state_ != State::open) return;
    if (on_answer_) on_answer_(response.status);
    const bool bodyless = response.status == 204;
    std::string text = head(response);
    if (!bodyless) text += fmt::format("content-length: {}\r\n", response.body.size());
    text += "\r\n";
    if (!bodyless && request_.method != "HEAD") text += response.body;
    finish(std::move(text));
  }

  void start_stream(HttpResponse response) override {
    if (state_ != State::open) return;
    state_ = State::streaming;
    if (on_answer_) on_answer_(response.status);
    if (!http11_) keep_alive_ = false;  // the end of the connection is the end of the body
    std::string text = head(response);
    text += http11_ ? "transfer-encoding: chunked\r\n\r\n" : "\r\n";
    connection_->send(std::move(text));
  }

  void write(std::string_view part) override {
    if (state_ != State::streaming || part.empty()) return;
    if (connection_->out_bytes_ > connection_->limits_.stream_queue_bytes) {
      spdlog::warn("{}: the client does not read its stream, {} bytes wait: given up", request_.id, connection_->out_bytes_);
      const auto keep = connection_;
      keep->close();
      return;
    }
    connection_->send(http11_ ? fmt::format("{:x}\r\n{}\r\n", part.size(), part) : std::string(part));
  }

  void end_stream() override {
    if (state_ == State::streaming) finish(http11_ ? "0\r\n\r\n" : "");
  }

  void set_timer(uint64_t ms, std::function<void()> action) override {
    if (state_ == State::over) return;
    Connection& c = *connection_;
    const uint64_t round = ++c.action_round_;
    c.action_timer_.expires_after(std::chrono::milliseconds(ms));
    c.action_timer_.async_wait([self = shared_from_this(), round, action = std::move(action)](error_code ec) {
      if (!ec && self->state_ != State::over && self->connection_->action_round_ == round) action();
    });
  }

  void on_gone(std::function<void()> action) override { on_gone_ = std::move(action); }
  void on_answer(std::function<void(int)> action) override { on_answer_ = std::move(action); }
  void post(std::function<void()> action) override { asio::post(connection_->executor(), std::move(action)); }

  // The connection closed under this exchange.
  void lost() {
    if (state_ == State::over) return;
    const auto keep = shared_from_this();
    state_ = State::over;
    stop_timer();
    const auto action = std::exchange(on_gone_, nullptr);
    if (action) action();
    end();
  }
  bool over() const { return state_ == State::over; }

 private:
  enum class State { open, streaming, over };

  std::string head(const HttpResponse& response) const {
    std::string text = fmt::format("HTTP/1.1 {} {}\r\n", response.status, reason_phrase(response.status));
    if (response.status != 204) text += fmt::format("content-type: {}\r\n", response.content_type);
    text += fmt::format("x-request-id: {}\r\n", request_.id);
    for (const Headers* list : {&response.headers, &extra_})
      for (const auto& [name, value] : *list) text += fmt::format("{}: {}\r\n", name, value);
    text += keep_alive_ ? (http11_ ? "" : "connection: keep-alive\r\n") : "connection: close\r\n";
    return text;
  }
  void finish(std::string last) {
    const auto keep = shared_from_this();
    state_ = State::over;
    stop_timer();
    on_gone_ = nullptr;
    if (!last.empty()) connection_->send(std::move(last));
    connection_->answer_complete(!keep_alive_);
    end();
  }
  void stop_timer() {
    ++connection_->action_round_;
    connection_->action_timer_.cancel();
  }
  void end() {
    if (!std::exchange(ended_, true)) connection_->owner_.exchange_ended();
    on_answer_ = nullptr;
  }

  const std::shared_ptr<Connection> connection_;
  HttpRequest request_;
  bool keep_alive_;
  const bool http11_;
  Headers extra_;
  State state_ = State::open;
  bool ended_ = false;
  std::function<void()> on_gone_;
  std::function<void(int)> on_answer_;
};

// ---- connection ----

Connection::~Connection() {
  hold_body(0);
  std::lock_guard lock(owner_.mutex);
  owner_.connections.erase(this);
}

void Connection::start() {
  error_code ignored;
  socket_.set_option(tcp::no_delay(true), ignored);
  parse();
}

void Connection::close() {
  if (std::exchange(closed_, true)) return;
  ++deadline_round_;
  deadline_.cancel();
  error_code ignored;
  socket_.shutdown(tcp::socket::shutdown_both, ignored);
  socket_.close(ignored);
  hold_body(0);
  if (const auto exchange = std::exchange(exchange_, nullptr)) exchange->lost();
}

void Connection::hold_body(uint64_t bytes) {
  owner_.body_bytes.fetch_add(bytes);
  owner_.body_bytes.fetch_sub(held_body_bytes_);
  held_body_bytes_ = bytes;
}

void Connection::read_more() {
  if (reading_ || closed_) return;
  reading_ = true;
  // Not straight into buffer_: that may be consumed, and so moved, while a read is under way.
  socket_.async_read_some(asio::buffer(incoming_), [self = shared_from_this()](error_code ec, size_t n) {
    self->reading_ = false;
    self->on_read(ec, n);
  });
}

void Connection::on_read(error_code ec, size_t n) {
  if (closed_) return;
  if (ec) {
    // The end of input while a request runs is taken as the client's leaving: there is no telling a half-closed
    // connection from a closed one before something is written, and an abandoned request must not go on computing.
    // An answer that is complete and only being written is still delivered.
    if (answered_ && ec == asio::error::eof) {
      close_after_ = true;
      return;
    }
    return close();
  }
  std::memcpy(buffer_.prepare(n).data(), incoming_.data(), n);
  buffer_.commit(n);
  if (lingering_) {
    lingered_ += n;
    buffer_.consume(buffer_.size());
    return lingered_ > kLingerBytes ? close() : read_more();
  }
  if (exchange_ || answered_) {
    if (buffer_.size() < kPipelineBytes) read_more();
    return;
  }
  parse();
}

void Connection::parse() {
  if (closed_) return;
  if (!parser_) {
    // Blank lines between requests are allowed.
    while (buffer_.size() && (*static_cast<const char*>(buffer_.data().data()) == '\r' ||
                              *static_cast<const char*>(buffer_.data().data()) == '\n'))
      buffer_.consume(1);
    if (buffer_.size() == 0) {
      set_deadline(Waiting::idle, limits_.idle_timeout_ms);
      return read_more();
    }
    parser_.emplace();
    parser_->header_limit(static_cast<uint32_t>(limits_.header_bytes + limits_.request_line_bytes));
    parser_->body_limit(limits_.body_bytes);
    parser_->eager(false);
    header_checked_ = line_parsed_ = false;
    request_began_ = std::chrono::steady_clock::now();
    set_deadline(Waiting::request, limits_.idle_timeout_ms);
  }
  if (!header_checked_ && !parse_header()) return;
  if (!parser_->is_done() && !parse_body()) return;
  dispatch();
}

// False: more bytes are awaited, or the request was refused.
bool Connection::parse_header() {
  error_code ec;
  const size_t consumed = parser_->put(buffer_.data(), ec);
  buffer_.consume(consumed);
  line_parsed_ = line_parsed_ || consumed > 0;  // Beast takes whole lines, the request line first
  if (ec == http::error::need_more) {
    const std::string_view text(static_cast<const char*>(buffer_.data().data()), buffer_.size());
    if (!line_parsed_ && text.size() > limits_.request_line_bytes && text.find('\n') > limits_.request_line_bytes) {
      refuse(414, "request_line_too_long", fmt::format("the request line is longer than {} bytes", limits_.request_line_bytes));
      return false;
    }
    if (text.size() > limits_.header_bytes + limits_.request_line_bytes) {
      refuse_parse(http::error::header_limit);
      return false;
    }
    read_more();
    return false;
  }
  if (ec) {
    refuse_parse(ec);
    return false;
  }
  header_checked_ = true;
  return check_header();
}

bool Connection::check_header() {
  const auto& message = parser_->get();
  size_t n_fields = 0, bytes = 0;
  for (const auto& field : message) {
    ++n_fields;
    bytes += field.name_string().size() + field.value().size() + 4;
  }
  if (message.method_string().size() + message.target().size() + 10 > limits_.request_line_bytes)
    refuse(414, "request_line_too_long", fmt::format("the request line is longer than {} bytes", limits_.request_line_bytes));
  else if (bytes > limits_.header_bytes || n_fields > limits_.header_count)
    refuse_parse(http::error::header_limit);
  else if (message.find(http::field::transfer_encoding) != message.end() &&
           !equals_ignoring_case({message[http::field::transfer_encoding].data(), message[http::field::transfer_encoding].size()}, "chunked"))
    refuse(400, "invalid_http", "only the chunked transfer encoding is understood");
  else if (message.version() >= 11 && message.count(http::field::host) != 1)
    refuse(400, "invalid_http", "exactly one Host header is needed");
  else {
    const auto expect = message[http::field::expect];
    if (!parser_->is_done() && buffer_.size() == 0 && equals_ignoring_case({expect.data(), expect.size()}, "100-continue"))
      send("HTTP/1.1 100 Continue\r\n\r\n");
    parser_->eager(true);
    return true;
  }
  return false;
}

bool Connection::parse_body() {
  const auto reserve = [&](uint64_t bytes) {
    if (bytes > held_body_bytes_) hold_body(bytes);
    return owner_.body_bytes.load() <= limits_.bodies_bytes + limits_.body_bytes;
  };
  while (buffer_.size()) {
    error_code ec;
    const size_t n = parser_->put(buffer_.data(), ec);
    buffer_.consume(n);
    if (ec && ec != http::error::need_more) {
      refuse_parse(ec);
      return false;
    }
    if (!reserve(parser_->get().body().size())) {
      refuse(503, "overloaded", "too many request bodies are being read: try again");
      return false;
    }
    if (parser_->is_done()) return true;
    if (n == 0 || ec == http::error::need_more) break;
  }
  if (buffer_.size() > kPipelineBytes) {  // a chunk header or trailer that does not end
    refuse(400, "invalid_http", "a chunk header or trailer is too long");
    return false;
  }
  // Slow is fine, but not for ever.
  if (std::chrono::steady_clock::now() - request_began_ < std::chrono::milliseconds(limits_.idle_timeout_ms * 10))
    set_deadline(Waiting::request, limits_.idle_timeout_ms);
  read_more();
  return false;
}

void Connection::dispatch() {
  auto message = parser_->release();
  parser_.reset();
  HttpRequest request;
  request.method = std::string(message.method_string());
  request.target = std::string(message.target());
  for (const auto& field : message) {
    std::string name(field.name_string());
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
    request.headers.emplace_back(std::move(name), std::string(field.value()));
  }
  request.body = std::move(message.body());
  const std::string* id = request.header("x-request-id");
  request.id = id && is_visible_id(*id) ? *id : "req_" + random_id();
  set_deadline(Waiting::nothing, 0);
  exchange_ = std::make_shared<SocketExchange>(shared_from_this(), std::move(request), message.keep_alive(),
                                               message.version() >= 11);
  const auto exchange = exchange_;
  owner_.handler(exchange);
  if (!closed_ && !exchange->over()) read_more();  // notices the client leaving
}

void Connection::refuse_parse(error_code ec) {
  if (ec == http::error::header_limit)
    return refuse(431, "headers_too_large", fmt::format("headers are limited to {} bytes and {} fields", limits_.header_bytes, limits_.header_count));
  if (ec == http::error::body_limit)
    return refuse(413, "body_too_large", fmt::format("the body is larger than {} bytes", limits_.body_bytes));
  refuse(400, "invalid_http", "malformed HTTP request: " + ec.message());
}

void Connection::refuse(int status, std::string code, std::string message) {
  parser_.reset();
  buffer_.consume(buffer_.size());
  HttpRequest request;
  request.id = "req_" + random_id();
  request.refusal = Refusal{status, std::move(code), std::move(message)};
  set_deadline(Waiting::nothing, 0);
  lingered_ = 0;
  exchange_ = std::make_shared<SocketExchange>(shared_from_this(), std::move(request), false, true);
  owner_.handler(exchange_);
}

void Connection::send(std::string bytes) {
  if (closed_) return;
  out_bytes_ += bytes.size();
  out_.push_back(std::move(bytes));
  if (!writing_) write_some();
}

void Connection::write_some() {
  writing_ = true;
  // A stream that has the client's attention may be silent for long, so only unread bytes start this clock.
  if (!parser_) set_deadline(Waiting::write, limits_.idle_timeout_ms);
  const std::string& front = out_.front();
  socket_.async_write_some(asio::buffer(front.data() + out_offset_, front.size() - out_offset_),
                           [self = shared_from_this()](error_code ec, size_t n) { self->on_written(ec, n); });
}

void Connection::on_written(error_code ec, size_t n) {
  writing_ = false;
  if (closed_) return;
  if (ec) return close();
  out_offset_ += n;
  out_bytes_ -= n;
  if (out_offset_ == out_.front().size()) {
    out_.pop_front();
    out_offset_ = 0;
  }
  if (!out_.empty()) return write_some();
  if (waiting_ == Waiting::write) set_deadline(Waiting::nothing, 0);
  if (answered_) next_or_close();
}

void Connection::answer_complete(bool close) {
  exchange_.reset();
  if (closed_) return;
  answered_ = true;
  close_after_ = close_after_ || close;
  hold_body(0);
  if (out_.empty()) asio::post(executor(), [self = shared_from_this()] { if (self->answered_ && self->out_.empty() && !self->closed_) self->next_or_close(); });
}

void Connection::next_or_close() {
  answered_ = false;
  if (close_after_) return linger();
  parse();
}

// Closing with unread input would reset the connection and could take the answer with it.
void Connection::linger() {
  error_code ignored;
  socket_.shutdown(tcp::socket::shutdown_send, ignored);
  lingering_ = true;
  buffer_.consume(buffer_.size());
  set_deadline(Waiting::linger, kLingerMs);
  read_more();
}

void Connection::set_deadline(Waiting what, uint64_t ms) {
  waiting_ = what;
  const uint64_t round = ++deadline_round_;
  if (what == Waiting::nothing) {
    deadline_.cancel();
    return;
  }
  deadline_.expires_after(std::chrono::milliseconds(ms));
  deadline_.async_wait([self = shared_from_this(), round](error_code ec) {
    if (!ec && round == self->deadline_round_ && !self->closed_) self->on_deadline();
  });
}

void Connection::on_deadline() {
  if (waiting_ == Waiting::request && !exchange_) return refuse(408, "timeout", "the request did not arrive in time");
  close();
}

// ---- acceptor ----

constexpr const char* kAddressHint =
    "server.host must be an address of this machine: 127.0.0.1, one that `ip address` shows, or 0.0.0.0 for all of them";

static std::string listen_hint(const error_code& ec, uint16_t port) {
  if (ec == asio::error::address_in_use) return "choose another server.port, or stop the program that uses it";
  if (ec == asio::error::access_denied && port != 0 && port < 1024)
    return "ports below 1024 need a privilege; choose a server.port from 1024 up";
  return kAddressHint;
}

Status Transport::Impl::bind(const std::string& host, uint16_t wanted) {
  error_code ec;
  tcp::resolver resolver(io);
  const auto found = resolver.resolve(host, std::to_string(wanted), tcp::resolver::passive, ec);
  if (ec || found.empty())
    return error(Code::invalid_argument, "server.host: cannot resolve '{}': {}", host, ec.message())
        .with_hint(kAddressHint);
  const tcp::endpoint endpoint = found.begin()->endpoint();
  acceptor.open(endpoint.protocol(), ec);
  if (!ec) acceptor.set_option(tcp::acceptor::reuse_address(true), ec);
  if (!ec) acceptor.bind(endpoint, ec);
  if (!ec) acceptor.listen(asio::socket_base::max_listen_connections, ec);
  if (ec)
    return error(Code::invalid_argument, "cannot listen on {}:{}: {}", host, wanted, ec.message())
        .with_hint(listen_hint(ec, wanted));
  const tcp::endpoint bound = acceptor.local_endpoint(ec);
  port = bound.port();
  loopback = bound.address().is_loopback();
  address = bound.address().is_v6() ? "[" + bound.address().to_string() + "]" : bound.address().to_string();
  return Status::ok();
}

void Transport::Impl::accept() {
  acceptor.async_accept(asio::make_strand(io), [this](error_code ec, tcp::socket socket) {
    if (ec == asio::error::operation_aborted) return;
    if (ec) {  // out of descriptors, most likely: wait for some to be freed
      retry.expires_after(std::chrono::milliseconds(100));
      retry.async_wait([this](error_code stopped) { if (!stopped) accept(); });
      return;
    }
    std::shared_ptr<Connection> connection;
    {
      std::lock_guard lock(mutex);
      if (closing) return;
      if (connections.size() < limits.max_connections) {
        connection = std::make_shared<Connection>(*this, std::move(socket));
        connections.emplace(connection.get(), connection);
      }
    }
    if (connection) {
      asio::post(connection->executor(), [connection] { connection->start(); });
    } else {
      static constexpr std::string_view kFull =
          "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json; charset=utf-8\r\nretry-after: 1\r\n"
          "connection: close\r\ncontent-length: 134\r\n\r\n"
          "{\"error\":{\"message\":\"too many connections: try again later\",\"type\":\"unavailable_error\",\"param\":null,"
          "\"code\":\"overloaded\",\"status\":503}}";
      error_code ignored;
      socket.non_blocking(true, ignored);
      socket.write_some(asio::buffer(kFull.data(), kFull.size()), ignored);
    }
    accept();
  });
}

void Transport::Impl::close_all() {
  std::vector<std::shared_ptr<Connection>> open;
  {
    std::lock_guard lock(mutex);
    closing = true;
    for (const auto& [key, weak] : connections)
      if (auto connection = weak.lock()) open.push_back(std::move(connection));
  }
  asio::post(io, [this] {
    error_code ignored;
    acceptor.close(ignored);
    retry.cancel();
  });
  for (const auto& connection : open) asio::post(connection->executor(), [connection] { connection->close(); });
}

// ---- face ----

Transport::Transport(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<Transport>> Transport::start(const std::string& host, uint16_t port, const TransportLimits& limits,
                                                    ExchangeHandler handler) {
  try {
    auto impl = std::make_shared<Impl>(limits, std::move(handler));
    TURBO_RETURN_IF_ERROR(impl->bind(host, port));
    impl->accept();
    std::unique_ptr<Transport> transport(new Transport(impl));
    for (uint32_t i = 0; i < std::max(1u, limits.threads); ++i)
      impl->threads.emplace_back([io = &impl->io, guard = asio::make_work_guard(impl->io)] {
        for (;;) {
          try {
            io->run();
            return;
          } catch (const std::exception& e) {  // a handler's failure ends that handler only
            spdlog::error("server: {}", e.what());
          }
        }
      });
    return transport;
  } catch (const std::exception& e) {
    return error(Code::internal, "cannot start the server: {}", e.what());
  }
}

Transport::~Transport() {
  close();
  wait_idle(10000);
  impl_->io.stop();
  for (std::thread& thread : impl_->threads) thread.join();
}

uint16_t Transport::port() const { return impl_->port; }
const std::string& Transport::address() const { return impl_->address; }
bool Transport::is_loopback() const { return impl_->loopback; }

bool Transport::wait_idle(uint64_t timeout_ms) {
  std::unique_lock lock(impl_->mutex);
  return impl_->idle.wait_for(lock, std::chrono::milliseconds(timeout_ms), [&] { return impl_->n_exchanges.load() == 0; });
}

void Transport::close() { impl_->close_all(); }

}  // namespace turbo::server
