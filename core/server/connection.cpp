#include "server/connection.h"

#include <spdlog/spdlog.h>

#include <boost/asio/post.hpp>

#include <algorithm>
#include <cstring>

#include "server/socket_exchange.h"

namespace turbo::server {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr size_t kLingerBytes = 8 << 20;  // discarded from a refused client, so that it can read why
constexpr uint64_t kLingerMs = 2000;
constexpr uint64_t kLastProbeMs = 15000;  // between probes of a client that has closed its side

}  // namespace

Connection::~Connection() {
  if (!closed_) owner_.socket_closed();
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
  probe_timer_.cancel();
  error_code ignored;
  socket_.shutdown(tcp::socket::shutdown_both, ignored);
  socket_.close(ignored);
  hold_body(0);
  if (const auto exchange = std::exchange(exchange_, nullptr)) exchange->lost();
  owner_.socket_closed();
}

void Connection::close_when_answered() {
  ending_ = true;
  if (exchange_ || answered_) return;
  if (lingering_) discard_input();
  close();
}

void Connection::hold_body(uint64_t bytes) {
  owner_.body_bytes.fetch_add(bytes);
  owner_.body_bytes.fetch_sub(held_body_bytes_);
  held_body_bytes_ = bytes;
}

void Connection::read_more() {
  if (reading_ || closed_) return;
  if (input_ended_) return close();  // what is asked for never comes
  reading_ = true;
  // Not straight into buffer_: that may be consumed, and so moved, while a read is under way.
  socket_.async_read_some(asio::buffer(incoming_), [self = shared_from_this()](error_code ec, size_t n) {
    self->reading_ = false;
    self->on_read(ec, n);
  });
}

void Connection::on_read(error_code ec, size_t n) {
  if (closed_) return;
  if (ec == asio::error::eof && !lingering_) return on_input_end();
  if (ec) return close();
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

// The client closed its side. What it asked for before is answered; whether it left altogether shows when something is
// written to it.
void Connection::on_input_end() {
  input_ended_ = true;
  if (!exchange_ && !answered_) return close();
  watch_peer();
  if (answered_) return;  // next_or_close() goes on from here
  probe_peer(kFirstProbeMs);
}

// Ends with the socket; reports an error or hang-up, but not the end of input.
void Connection::watch_peer() {
  socket_.async_wait(tcp::socket::wait_error, [self = shared_from_this()](error_code ec) {
    if (!ec) self->close();
  });
}

// A peer that is gone answers any byte with a reset, which watch_peer() sees.
void Connection::probe_peer(uint64_t next_ms) {
  if (closed_ || !exchange_) return;
  if (out_.empty()) exchange_->probe();
  if (closed_ || !exchange_) return;
  probe_timer_.expires_after(std::chrono::milliseconds(next_ms));
  probe_timer_.async_wait([self = shared_from_this(), next_ms, exchange = std::weak_ptr(exchange_)](error_code ec) {
    if (!ec && self->exchange_ && self->exchange_ == exchange.lock()) self->probe_peer(std::min(2 * next_ms, kLastProbeMs));
  });
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
  if (ending_) {
    discard_input();
    return close();
  }
  if (close_after_) return linger();
  parse();
}

// Closing with unread input would reset the connection and could take the answer with it.
void Connection::linger() {
  if (input_ended_) return close();
  error_code ignored;
  socket_.shutdown(tcp::socket::shutdown_send, ignored);
  lingering_ = true;
  buffer_.consume(buffer_.size());
  set_deadline(Waiting::linger, kLingerMs);
  read_more();
}

// What has come already; a server that stops does not wait for more.
void Connection::discard_input() {
  error_code ec;
  socket_.non_blocking(true, ec);
  std::array<char, 4096> scrap;  // a read into incoming_ may be under way
  for (size_t n = 0; !ec && n < kLingerBytes;) n += socket_.read_some(asio::buffer(scrap), ec);
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

}  // namespace turbo::server
