#include "client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>

namespace turbo::server::testing {

std::string Reply::error_code() const {
  const Json body = json();
  return body.is_object() && body.contains("error") && body["error"]["code"].is_string() ? body["error"]["code"].get<std::string>() : "";
}
std::string Reply::error_param() const {
  const Json body = json();
  return body.is_object() && body.contains("error") && body["error"]["param"].is_string() ? body["error"]["param"].get<std::string>() : "";
}

Client::Client(uint16_t port, int receive_buffer) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
  if (receive_buffer) ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) close();
  const int on = 1;
  ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}
Client::~Client() { close(); }

bool Client::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}
void Client::half_close() { ::shutdown(fd_, SHUT_WR); }
void Client::close() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}
void Client::reset() {
  const linger now{1, 0};
  ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
  close();
}

std::string Client::receive(int timeout_ms) {
  pollfd poller{fd_, POLLIN, 0};
  if (fd_ < 0 || ::poll(&poller, 1, timeout_ms) <= 0) return {};
  char bytes[16384];
  const ssize_t n = ::recv(fd_, bytes, sizeof bytes, 0);
  return n > 0 ? std::string(bytes, static_cast<size_t>(n)) : std::string();
}
bool Client::closed(int timeout_ms) {
  pollfd poller{fd_, POLLIN, 0};
  if (::poll(&poller, 1, timeout_ms) <= 0) return false;
  char byte;
  return ::recv(fd_, &byte, 1, 0) <= 0;
}

Reply Client::read(bool head_only) {
  Reply reply;
  const auto more = [&] {
    const std::string bytes = receive();
    buffer_ += bytes;
    return !bytes.empty();
  };
  size_t end;
  while ((end = buffer_.find("\r\n\r\n")) == std::string::npos)
    if (!more()) return reply;
  reply.head = buffer_.substr(0, end + 2);
  buffer_.erase(0, end + 4);
  std::istringstream lines(reply.head);
  std::string line;
  std::getline(lines, line);
  reply.status = line.size() > 12 ? std::atoi(line.c_str() + 9) : 0;
  while (std::getline(lines, line)) {
    const size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    std::string name = line.substr(0, colon);
    std::transform(name.begin(), name.end(), name.begin(), ::tolower);
    reply.headers[name] = line.substr(colon + 2, line.find('\r') - colon - 2);
  }
  if (head_only || reply.status == 204 || reply.status == 100) {
    reply.complete = true;
    return reply;
  }
  if (reply.headers.count("content-length")) {
    const size_t length = std::stoul(reply.headers["content-length"]);
    while (buffer_.size() < length && more()) {
    }
    reply.complete = buffer_.size() >= length;
    reply.body = buffer_.substr(0, length);
    buffer_.erase(0, length);
    return reply;
  }
  if (reply.headers.count("transfer-encoding") == 0) {
    while (more()) {
    }
    reply.body = std::exchange(buffer_, {});
    reply.complete = true;
    return reply;
  }
  while (true) {
    size_t eol;
    while ((eol = buffer_.find("\r\n")) == std::string::npos)
      if (!more()) return reply;
    const size_t length = std::stoul(buffer_.substr(0, eol), nullptr, 16);
    while (buffer_.size() < eol + 2 + length + 2)
      if (!more()) return reply;
    reply.body += buffer_.substr(eol + 2, length);
    buffer_.erase(0, eol + 2 + length + 2);
    if (length == 0) break;
  }
  reply.complete = true;
  return reply;
}

std::string request_text(const std::string& method, const std::string& path, const std::string& body, const std::string& headers) {
  std::string text = method + " " + path + " HTTP/1.1\r\nHost: localhost\r\n" + headers;
  if (!body.empty() || method == "POST") text += "Content-Length: " + std::to_string(body.size()) + "\r\n";
  return text + "\r\n" + body;
}

Reply Client::request(const std::string& method, const std::string& path, const std::string& body, const std::string& headers) {
  send(request_text(method, path, body, headers));
  return read(method == "HEAD");
}

std::vector<std::string> events(const std::string& body) {
  std::vector<std::string> found;
  size_t at = 0;
  for (size_t end; (end = body.find("\n\n", at)) != std::string::npos; at = end + 2)
    if (body.compare(at, 6, "data: ") == 0) found.push_back(body.substr(at + 6, end - at - 6));
  return found;
}

}  // namespace turbo::server::testing
