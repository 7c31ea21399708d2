// One client's socket: bounded reading, deadlines, writing, and finding out whether the client is still there.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include <array>
#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "server/transport_impl.h"

namespace turbo::server {

inline constexpr size_t kReadBytes = 16 << 10;
inline constexpr uint64_t kFirstProbeMs = 500;      // to the second probe; doubles from there
inline constexpr size_t kPipelineBytes = 64 << 10;  // read ahead while a request is being answered

// One client: reads bounded requests, one after another, and writes their answers. All members are used on the socket's strand only.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Transport::Impl& owner, boost::asio::ip::tcp::socket socket)
      : owner_(owner), limits_(owner.limits), socket_(std::move(socket)), deadline_(socket_.get_executor()),
        action_timer_(socket_.get_executor()), probe_timer_(socket_.get_executor()) {}
  ~Connection();

  void start();
  void close();
  /// Now if nothing is being answered, else when the answer is written.
  void close_when_answered();
  auto executor() { return socket_.get_executor(); }

 private:
  friend class SocketExchange;
  enum class Waiting { nothing, idle, request, write, linger };

  void read_more();
  void on_read(boost::system::error_code ec, size_t n);
  void parse();
  bool parse_header();
  bool check_header();
  bool parse_body();
  void dispatch();
  void refuse(int status, std::string code, std::string message);
  void refuse_parse(boost::system::error_code ec);
  void hold_body(uint64_t bytes);

  void send(std::string bytes);
  void write_some();
  void on_written(boost::system::error_code ec, size_t n);
  void answer_complete(bool close);
  void next_or_close();
  void linger();
  void discard_input();

  void on_input_end();
  void watch_peer();
  void probe_peer(uint64_t next_ms);

  void set_deadline(Waiting what, uint64_t ms);
  void on_deadline();

  Transport::Impl& owner_;  // outlives the connections: closes and destroys them
  const TransportLimits& limits_;
  boost::asio::ip::tcp::socket socket_;
  boost::asio::steady_timer deadline_, action_timer_, probe_timer_;
  uint64_t deadline_round_ = 0, action_round_ = 0;
  Waiting waiting_ = Waiting::nothing;
  std::chrono::steady_clock::time_point request_began_;

  std::array<char, kReadBytes> incoming_;
  boost::beast::flat_buffer buffer_;
  std::optional<boost::beast::http::request_parser<boost::beast::http::string_body>> parser_;
  bool header_checked_ = false, line_parsed_ = false, reading_ = false, closed_ = false;
  bool ending_ = false;       // the server stops: nothing follows the present answer
  bool input_ended_ = false;  // the client sends no more; it may still read
  uint64_t held_body_bytes_ = 0;

  std::shared_ptr<class SocketExchange> exchange_;
  std::deque<std::string> out_;
  size_t out_offset_ = 0, out_bytes_ = 0, lingered_ = 0;
  bool writing_ = false, answered_ = false, close_after_ = false, lingering_ = false;
};

}  // namespace turbo::server
