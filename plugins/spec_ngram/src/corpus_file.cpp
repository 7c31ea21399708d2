#include "corpus_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <turbo/draft/ngram/state.hpp>

namespace turbo::spec_ngram {
namespace {

using draft::NgramCorpus;
using draft::NgramState;

uint64_t fingerprint(const Host& host) { return host.model() ? host.model()->tokenizer_fingerprint : 0; }
uint32_t vocabulary(const Host& host) { return host.model() ? host.model()->vocab_size : INT32_MAX; }

/// A file through the host, read in order.
class File {
 public:
  File(const Host& host, const std::string& path)
      : service_(host.service<turbo_host_file>(TURBO_HOST_FILE)), path_(path) {
    if (!service_) throw Failure(TURBO_UNSUPPORTED, "the host reads no files for drafters");
  }
  /// False: there is no such file, or nothing in it.
  bool open() {
    turbo_error error = make_error();
    const turbo_status status = service_->size(service_->ctx, path_.c_str(), &bytes_, &error);
    if (status == TURBO_NOT_FOUND) return false;
    check(status, error);
    return bytes_ > 0;
  }
  uint64_t bytes() const { return bytes_; }
  uint64_t left() const { return bytes_ - at_; }
  void rewind() { at_ = 0; }
  void read(void* to, size_t n) {
    turbo_error error = make_error();
    check(service_->read(service_->ctx, path_.c_str(), at_, to, n, &error), error);
    at_ += n;
  }

 private:
  static turbo_error make_error() {
    turbo_error error{};
    error.struct_size = sizeof error;
    return error;
  }
  static void check(turbo_status status, const turbo_error& error) {
    if (status != TURBO_OK) throw Failure(status, error.message, error.hint);
  }
  const turbo_host_file* service_;
  const std::string path_;
  uint64_t bytes_ = 0, at_ = 0;
};

/// Token ids with blanks or commas between them; a line is a text.
class TextLoader {
 public:
  TextLoader(NgramCorpus& corpus, uint32_t vocabulary) : corpus_(corpus), vocabulary_(vocabulary) {}

  void run(File& file) {
    std::vector<char> piece;
    while (file.left() > 0) {
      piece.resize(static_cast<size_t>(std::min<uint64_t>(file.left(), 1 << 16)));
      file.read(piece.data(), piece.size());
      for (const char c : piece) take(c);
    }
    take('\n');
  }

 private:
  void take(char c) {
    if (c >= '0' && c <= '9') {
      id_ = (in_id_ ? id_ * 10 : 0) + static_cast<uint64_t>(c - '0');
      in_id_ = true;
      if (id_ >= vocabulary_) fail("a token id is not below the vocabulary's " + std::to_string(vocabulary_));
      return;
    }
    if (c != ' ' && c != '\t' && c != ',' && c != '\r' && c != '\n') fail("expected token ids, one text per line");
    if (in_id_) text_.push_back(static_cast<int32_t>(id_));
    in_id_ = false;
    if (c == '\n') {
      corpus_.insert(text_);
      text_.clear();
      ++line_;
    }
  }
  [[noreturn]] void fail(const std::string& why) const {
    throw Failure(TURBO_CORRUPT_INPUT, "line " + std::to_string(line_) + ": " + why,
                  "give token ids of this model, or a file that this drafter saved");
  }
  NgramCorpus& corpus_;
  const uint32_t vocabulary_;
  std::vector<int32_t> text_;
  uint64_t id_ = 0, line_ = 1;
  bool in_id_ = false;
};

CorpusForm load(const Host& host, File& file, NgramCorpus& corpus) {
  char magic[8] = {};
  if (file.bytes() >= sizeof magic) file.read(magic, sizeof magic);
  file.rewind();
  if (std::memcmp(magic, NgramState::kMagic, sizeof magic) == 0) {
    NgramState::load(corpus, fingerprint(host), vocabulary(host), file.bytes(),
                     [&](void* to, size_t n) { file.read(to, n); });
    return CorpusForm::state;
  }
  if (file.bytes() > kMostTextBytes)
    throw Failure(TURBO_INVALID_ARGUMENT,
                  std::to_string(file.bytes()) + " bytes of text are more than " + std::to_string(kMostTextBytes),
                  "give a smaller text");
  TextLoader(corpus, vocabulary(host)).run(file);
  return CorpusForm::text;
}

/// Closes, and unless renamed removes, the new file.
class NewFile {
 public:
  explicit NewFile(const std::string& path) : path_(path + ".new." + std::to_string(::getpid())) {
    fd_ = ::open(path_.c_str(), O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd_ < 0) fail("open");
  }
  ~NewFile() {
    if (fd_ >= 0) ::close(fd_);
    if (!done_) ::unlink(path_.c_str());
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;
  void write(const void* bytes, size_t n) {
    for (auto* at = static_cast<const char*>(bytes); n > 0;) {
      const ssize_t written = ::write(fd_, at, n);
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) fail("write");
      at += written;
      n -= static_cast<size_t>(written);
    }
  }
  void become(const std::string& path) {
    if (::fsync(fd_) != 0) fail("write");
    if (::rename(path_.c_str(), path.c_str()) != 0) fail("rename");
    done_ = true;
  }

 private:
  [[noreturn]] void fail(const char* what) const {
    const std::string why = std::strerror(errno);
    if (fd_ < 0) throw Failure(TURBO_INTERNAL, std::string(what) + ": " + why);
    throw Failure(TURBO_INTERNAL, std::string(what) + ": " + why, "make room, or choose another folder");
  }
  const std::string path_;
  int fd_ = -1;
  bool done_ = false;
};

}  // namespace

CorpusForm load_corpus(const Host& host, const std::string& path, NgramCorpus& corpus) {
  try {
    File file(host, path);
    return file.open() ? load(host, file, corpus) : CorpusForm::none;
  } catch (const Failure& failure) {
    corpus.reset();
    throw Failure(failure.code, "corpus " + path + ": " + failure.message, failure.hint);
  }
}

void save_corpus(const Host& host, const std::string& path, const NgramCorpus& corpus) {
  try {
    NewFile file(path);
    NgramState::save(corpus, fingerprint(host), [&](const void* bytes, size_t n) { file.write(bytes, n); });
    file.become(path);
  } catch (const Failure& failure) {
    throw Failure(failure.code, "corpus " + path + ": not saved: " + failure.message, failure.hint);
  }
}

}  // namespace turbo::spec_ngram
