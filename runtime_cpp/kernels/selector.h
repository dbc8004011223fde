// Sparsification in one pass: accumulates a term and takes the entries of largest magnitude out of
// the sum.
//
// A sample gives a threshold, the pass collects all entries above it, and the largest of those are
// kept. If too few entries reach the threshold, an exact choice makes a second pass, and an
// approximate one adds other entries, different ones every time. The sample is drawn by hashing a
// counter, so that every implementation draws the same sample, in any order.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/sparse.h"

namespace geomx::kernels {

// A sample of `size` entries; the threshold is its magnitude of rank `rank`.
struct Sampling {
  std::uint64_t size = 0;  // 0: too few entries for a sample to pay off
  double rank = 0;         // of the last entry wanted, if the sample were perfect

  Sampling(std::uint64_t elements, std::uint64_t rows) {
    constexpr double kSampleRank = 32;  // more: finer, slower
    const double share = static_cast<double>(rows) / static_cast<double>(elements);
    const double wanted = kSampleRank / share;
    size = wanted > static_cast<double>(elements) / 4 ? 0 : static_cast<std::uint64_t>(wanted);
    rank = wanted * share;
  }

  // Two standard deviations lower, so that rather too many than too few entries pass. May exceed
  // the sample.
  static std::uint64_t Rank(double rank) {
    return static_cast<std::uint64_t>(rank + 2 * std::sqrt(rank));
  }
};

inline constexpr std::uint64_t kSampleStep = 0x9e3779b97f4a7c15u;

// The index, of `elements` (up to 2^32), that a sample takes for `state`: the seed plus kSampleStep
// times 1, 2, ...
constexpr std::uint64_t SampledAt(std::uint64_t state, std::uint64_t elements) {
  std::uint64_t hash = state;
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9u;
  hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebu;
  return (hash >> 32) * elements >> 32;
}

// Chooses exactly as many entries as are wanted, in ascending order.
class Selector {
 public:
  // `next_fill`: where adding other entries continues.
  explicit Selector(std::uint64_t next_fill = 0) : next_fill_(next_fill) {}

  // `rows` of the `elements` entries of `values`; valid until the next call.
  //   peek(i): the future value of entry i.
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

  // Returns true if the last choice is known to include all entries that are not zero.
  bool complete() const { return complete_; }
  std::uint64_t next_fill() const { return next_fill_; }
  void set_next_fill(std::uint64_t next_fill) { next_fill_ = next_fill; }

 private:
  // At least 1, as zeros are never chosen; 1 if the rank exceeds the sample.
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

// Options of a sparsification.
struct Sparsification {
  float momentum = 0;    // of the velocity; 0: no velocity
  double clip = 0;       // bound on the term's norm; 0: none
  bool masking = false;  // the velocity of a chosen entry becomes zero too
  bool exact = false;    // the exact choice instead of the approximate one
  std::uint64_t seed = 0;
};

// scale <- ClipScale(clip, term, n);  velocity <- Step(term, velocity);
// sum <- sum + velocity;  the `rows` largest of the sum are taken out, and become zero.
// `velocity` is null without momentum. REQUIRES: 0 < rows <= n <= 2^32.
const Entries& Sparsify(const Sparsification& how, const float* term, float* velocity, float* sum,
                        std::uint64_t n, std::uint64_t rows, Selector& selector);

// The factor that limits the term's norm to `clip`.
float ClipScale(double clip, const float* term, std::uint64_t n);

}  // namespace geomx::kernels
