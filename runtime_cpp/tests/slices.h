// Values as they arrive over a network, for tests of codecs: in slices, in any order; and the law that what
// does not arrive is kept.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "core/codec.h"
#include "core/natives.h"
#include "tests/numbers.h"
#include "tests/seeds.h"

namespace geomx::check {

// A codec by its name, for a shard of so many elements.
inline CodecChain ChainOf(const std::string& name, const Options& options, std::uint64_t elements) {
  return CodecChain({NativeCodecs::Instance().Create(name, options)},
                    ShardInfo{.elements = static_cast<std::uint32_t>(elements)});
}

// Decodes slices of `step` rows in a random order into `out`, which has all elements: adds to it, or
// replaces it.
inline std::vector<float> DecodeSlices(const CodecChain& chain, const Parts& parts,
                                       std::uint64_t step, std::vector<float> out, bool overwrite,
                                       Random& random) {
  std::vector<std::uint64_t> starts = {0};  // also of parts without rows
  for (std::uint64_t first = step; first < parts.rows; first += step) starts.push_back(first);
  std::shuffle(starts.begin(), starts.end(), random);
  for (const std::uint64_t first : starts) {
    const std::uint64_t count = std::min(step, parts.rows - first);
    std::vector<std::byte> slice(1);  // payloads need not be aligned
    for (const Part& part : parts.parts) {
      if (!part.IsIn(first)) continue;
      const std::byte* start = part.data + (part.whole ? 0 : part.BytesFor(first));
      slice.insert(slice.end(), start, start + part.BytesFor(count));
    }
    const char* reason = chain.DecodeInto(Bytes(slice).subspan(1), parts.elements, first, count,
                                          parts.rows, overwrite, out.data(),
                                          {parts.round, parts.last});
    CHECK_EQ(std::string(reason == nullptr ? "" : reason), "");
  }
  return out;
}

// Encodes values as the layout promises, and returns what arrives of them in slices of whole chunks. A linear
// codec then settles, as if there were no other senders.
inline Values Send(CodecChain& chain, const Values& values, Random& random, Turn turn = 1) {
  Parts parts = Parts::Dense(values.size(), values.data(), nullptr);
  parts.round = turn.round;
  parts.last = turn.last;
  chain.Encode(parts);
  CHECK_EQ(parts.SliceBytes(0, parts.rows),
           chain.Layout(values.size(), turn).SliceBytes(0, parts.rows));
  const std::uint64_t step = parts.RowsIn(1) * Between(random, 1, 3);
  const bool all = parts.Find("indices") == nullptr;  // selected rows are always added
  const Values arrived =
      DecodeSlices(chain, parts, step, Values(values.size(), all ? 7.0f : 0.0f), all, random);
  if (chain.Linear()) chain.Settle(CodecChain::Gather(parts), values.size(), turn);
  return arrived;
}

// In every round, what is kept (nothing before the first loss) is what was kept before times `decay`, plus what
// was fed, minus what arrived.
inline void LosesNothing(CodecChain& chain, std::uint64_t elements, double decay, Round rounds,
                         Random& random) {
  std::vector<double> due(elements, 0.0);
  for (Round round = 1; round <= rounds; ++round) {
    const Values fed = Draw(random, elements), sent = Send(chain, fed, random, round);
    const std::span<const float> kept = chain.Kept();
    CHECK(kept.empty() || kept.size() == elements);
    for (std::size_t i = 0; i < elements; ++i) {
      due[i] = decay * due[i] + fed[i] - sent[i];
      CHECK_NEAR(kept.size() == elements ? kept[i] : 0, due[i], 1e-5);
    }
    const double squares = std::inner_product(due.begin(), due.end(), due.begin(), 0.0);
    CHECK_NEAR(chain.SquaredResidual(), squares, 1e-4 * (1 + squares));
  }
}

// The last round sends what was kept and what is fed, to the bit; nothing is kept then, and the codec says so.
inline void LastSendsAll(CodecChain& chain, std::uint64_t elements, Round rounds, Random& random) {
  CHECK(chain.EndsEmpty());
  for (Round round = 1; round < rounds; ++round) Send(chain, Draw(random, elements), random, round);
  CHECK(chain.SquaredResidual() > 0);
  const std::span<const float> kept = chain.Kept();
  CHECK_EQ(kept.size(), elements);
  const Values fed = Draw(random, elements);
  Values due = fed;
  for (std::size_t i = 0; i < kept.size(); ++i) due[i] += kept[i];
  CHECK(Send(chain, fed, random, Turn(rounds, true)) == due);
  CHECK_EQ(chain.SquaredResidual(), 0.0);
}

// NaN at `place` arrives, so that it is detected as without compression, does not reach `other`, and does
// not stay for the next round.
inline void SendsNaN(CodecChain& chain, std::uint64_t elements, std::uint64_t place,
                     std::uint64_t other, Random& random) {
  Values fed = Draw(random, elements);
  fed[place] = std::nanf("");
  const Values sent = Send(chain, fed, random);
  CHECK(std::isnan(sent[place]));
  CHECK(std::isfinite(sent[other]));
  const Values next = Send(chain, Draw(random, elements), random, 2);
  CHECK(std::all_of(next.begin(), next.end(), [](float value) { return std::isfinite(value); }));
}

}  // namespace geomx::check
