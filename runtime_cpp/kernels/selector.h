// Sparsifying in one pass: accumulate a term, take the entries of largest magnitude out of the sum.
//
// A threshold comes from a sample, everything above it is found as the pass goes by, and the largest of
// those are kept. If the threshold let too few pass, an exact choice looks again, another takes some more
// entries, every time others. The sample is drawn by hashing its own count, so that every
// implementation draws the same sample, in any order.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/sparse.h"

namespace geomx::kernels {

// How a threshold is read off a sample of `size` entries: it is the magnitude of rank `rank` there.
struct Sampling {
  std::uint64_t size = 0;  // 0: too few entries for a sample to be worth it
  double rank = 0;         // of the last entry wanted, were the sample perfect

  Sampling(std::uint64_t elements, std::uint64_t rows) {
    constexpr double kSampleRank = 32;  // more: finer, slower
    const double share = static_cast<double>(rows) / static_cast<double>(elements);
    const double wanted = kSampleRank / share;
    size = wanted > static_cast<double>(elements) / 4 ? 0 : static_cast<std::uint64_t>(wanted);
    rank = wanted * share;
  }

  // Two standard deviations further down, so that rather more than fewer entries pass than are
  // wanted. The sample may not go so far.
  static std::uint64_t Rank(double rank) {
    return static_cast<std::uint64_t>(rank + 2 * std::sqrt(rank));
  }
};

inline constexpr std::uint64_t kSampleStep = 0x9e3779b97f4a7c15u;

// Which of `elements` (up to 2^32) a sample takes for `state`: the seed plus kSampleStep, times 1, 2 ...
constexpr std::uint64_t SampledAt(std::uint64_t state, std::uint64_t elements) {
  std::uint64_t hash = state;
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9u;
  hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebu;
  return (hash >> 32) * elements >> 32;
}

// Chooses exactly as many entries as are wanted, in ascending order.
class Selector {
 public:
  // `next_fill`: where taking some more entries goes on.
  explicit Selector(std::uint64_t next_fill = 0) : next_fill_(next_fill) {}

  // `rows` of the `elements` entries of `values`; valid until the next call.
  //   peek(i): what entry i is going to be.
  //   pass(threshold, scratch, found): computes the entries, and finds those of that magnitude.
  // REQUIRES: 0 < rows <= elements <= 2^32.
  template <class Peek, class Pass>
  const Entries& Select(const float* values, std::uint64_t elements, std::uint64_t rows,
                        std::uint64_t seed, bool exact, Peek peek, Pass pass) {
    const Sampling sampling(elements, rows);
    sample_.resize(sampling.size);
    std::uint64_t state = seed;
    for (float& value : sample_) value = peek(SampledAt(state += kSampleStep, elements));
    double rank = sampling.rank;
    threshold_ = Threshold(rank);
    pass(threshold_, scratch_, chosen_);
    while (chosen_.size() < rows && exact && threshold_ > 1) {
      threshold_ = Threshold(rank *= 4);
      Find(values, elements, threshold_, scratch_, chosen_);
    }
    complete_ = threshold_ == 1 && chosen_.size() <= rows;
    if (chosen_.size() > rows) KeepLargest(chosen_, rows, numbers_);
    if (chosen_.size() < rows) FillUp(values, elements, rows);
    return chosen_;
  }

  // Whether the last choice is known to hold everything that is not zero.
  bool complete() const { return complete_; }
  std::uint64_t next_fill() const { return next_fill_; }
  void set_next_fill(std::uint64_t next_fill) { next_fill_ = next_fill; }

 private:
  // At least 1: zeros are never worth a row. 1 if the sample does not go so far.
  std::uint32_t Threshold(double rank);
  void FillUp(const float* values, std::uint64_t elements, std::uint64_t rows);

  std::uint32_t threshold_ = 1;
  bool complete_ = false;
  std::uint64_t next_fill_;
  std::vector<float> sample_;
  Entries chosen_;
  FindScratch scratch_;
  std::vector<std::uint32_t> numbers_;
};

// What a tensor goes through before its largest entries leave.
struct Sparsification {
  float momentum = 0;    // of the velocity; 0: there is none
  double clip = 0;       // bound on the term's norm; 0: none
  bool masking = false;  // where an entry leaves, the velocity ends too
  bool exact = false;    // the largest, rather than nearly
  std::uint64_t seed = 0;
};

// scale <- what brings the term's norm within `clip`;  velocity <- Step(term, velocity);
// sum <- sum + velocity;  the `rows` largest of the sum leave, and are zero from then on.
// `velocity` is null without momentum. REQUIRES: 0 < rows <= n <= 2^32.
const Entries& Sparsify(const Sparsification& how, const float* term, float* velocity, float* sum,
                        std::uint64_t n, std::uint64_t rows, Selector& selector);

// What the term is multiplied by so that its norm is at most `clip`.
float ClipScale(double clip, const float* term, std::uint64_t n);

}  // namespace geomx::kernels
