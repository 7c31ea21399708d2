// The corpus to and from a file. Load: token ids as text (one text per line), or a saved state. Save: a state, in one
// stroke. [load]
#pragma once

#include <string>
#include <turbo/draft/ngram.hpp>
#include <turbo/plugin.hpp>

namespace turbo::spec_ngram {

enum class CorpusForm { none, text, state };

/// Texts longer than this are refused; states may be as long as they need.
inline constexpr uint64_t kMostTextBytes = 16ull << 20;

/// Fills an empty corpus; what the file held. No file, or one of no bytes, as tools make them for a name: none. Throws Failure, which names the file; the corpus is empty
/// then.
CorpusForm load_corpus(const Host& host, const std::string& path, draft::NgramCorpus& corpus);
/// Replaces the file, readable by its owner only. A failure leaves the old one as it was.
void save_corpus(const Host& host, const std::string& path, const draft::NgramCorpus& corpus);

}  // namespace turbo::spec_ngram
