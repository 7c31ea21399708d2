// Hello drafter: proposes the last token, n times over. Replace propose with something that looks further.
#include <turbo/drafter.hpp>

#include <unordered_map>

namespace {

constexpr const char* kOptions = R"({"repeat": {"type": "int", "default": 4, "min": 1, "max": 63,
                                                "doc": "how often the last token is proposed"}})";

class HelloDrafter : public turbo::Drafter<HelloDrafter> {
 public:
  explicit HelloDrafter(const turbo::Host& host) : repeat_(static_cast<uint32_t>(host.option("repeat", 4))) {}

  void needs(turbo_drafter_needs& needs) override {
    needs.max_slots = repeat_ + 1;
    needs.wants_prompt = 1;
  }
  void close(uint32_t sequence) override { last_.erase(sequence); }
  void observe(uint32_t sequence, const turbo::Observation& observation) override {
    if (!observation.tokens().empty()) last_[sequence] = observation.tokens().back();
  }
  void propose(turbo::DraftTree& draft) override {
    const auto last = last_.find(draft.sequence());
    if (last == last_.end()) return;  // nothing seen yet: no draft
    draft.chain(std::vector<int32_t>(repeat_, last->second));
  }

 private:
  uint32_t repeat_;
  std::unordered_map<uint32_t, int32_t> last_;
};

}  // namespace

TURBO_PLUGIN("org.example.my_drafter", "Hello drafter", "0.1.0", "Example", "Apache-2.0",
             turbo::component<HelloDrafter>(TURBO_KIND_DRAFTER, "hello", TURBO_TIER_CPU, kOptions))
