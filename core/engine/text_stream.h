// Tokens of one request into text: decoding at UTF-8 boundaries, stop strings held back. One thread at a time;
// shared by the server and the command line.
#pragma once

#include <string>
#include <vector>

#include "text/stop_matcher.h"
#include "text/stream_decoder.h"
#include "text/tokenizer.h"

namespace turbo::engine {

class TextStream {
 public:
  /// The tokenizer must outlive the stream.
  TextStream(const text::Tokenizer& tokenizer, std::vector<std::string> stops, bool skip_special = true)
      : decoder_(tokenizer, skip_special), matcher_(std::move(stops)) {}

  /// Text that is certain after this token. Once stopped() it is always empty.
  std::string push(int32_t token) {
    if (stopped_) return {};
    return take(matcher_.push(decoder_.push(token)));
  }
  /// What was still held back when generation ended.
  std::string finish() {
    if (stopped_) return {};
    std::string text = take(matcher_.push(decoder_.finish()));
    if (!stopped_) text += matcher_.finish();
    return text;
  }
  /// A stop string was met; the request should be cancelled.
  bool stopped() const { return stopped_; }
  const std::string& stop_string() const { return stop_; }

 private:
  std::string take(text::StopMatcher::Out out) {
    if (out.stopped) {
      stopped_ = true;
      stop_ = std::move(out.stop);
    }
    return std::move(out.text);
  }
  text::StreamDecoder decoder_;
  text::StopMatcher matcher_;
  bool stopped_ = false;
  std::string stop_;
};

}  // namespace turbo::engine
