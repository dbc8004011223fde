// PowerSGD's codecs: encodings of several parties add up, all of them derive the same basis, the best
// matrix of a rank is found, everything that is not sent is kept, and sizes follow the formula.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/natives.h"
#include "matrix.h"
#include "tests/slices.h"

namespace geomx {
namespace {

using check::Between;
using check::Draw;
using check::Random;
using check::Send;
using check::Values;
using powersgd::Shape;
using powersgd::ShapeOf;

constexpr const char* kNames[] = {"powersgd", "powersgd_own"};

CodecChain Chain(const std::string& name, std::uint64_t rank, std::uint64_t elements,
                 std::uint64_t dense_rounds = 0) {
  const Options options = {{"rank", static_cast<double>(rank)},
                           {"dense_rounds", static_cast<double>(dense_rounds)}};
  return check::ChainOf(name, options, elements);
}

Buffer Encoded(CodecChain& chain, const Values& values, Round round) {
  Parts parts = Parts::Dense(values.size(), values.data(), nullptr);
  parts.round = round;
  chain.Encode(parts);
  return CodecChain::Gather(parts);
}

// A square matrix whose singular values are these.
Values WithSpectrum(const std::vector<double>& spectrum, std::uint64_t side, Random& random) {
  Values left = Draw(random, side * spectrum.size()), right = Draw(random, side * spectrum.size());
  powersgd::Orthonormalise(left, side, spectrum.size(), 1);
  powersgd::Orthonormalise(right, side, spectrum.size(), 1);
  for (std::size_t k = 0; k < spectrum.size(); ++k) {
    for (std::size_t i = 0; i < side; ++i) left[k * side + i] *= static_cast<float>(spectrum[k]);
  }
  const Shape shape{.rows = side, .columns = side, .rank = spectrum.size()};
  Values matrix(side * side);
  powersgd::Product(shape, left.data(), right.data(), matrix.size(), powersgd::Into::kStore,
                    matrix.data());
  return matrix;
}

double NormOfDifference(std::span<const float> a, std::span<const float> b) {
  double squares = 0;
  for (std::size_t i = 0; i < a.size(); ++i) squares += std::pow(double{a[i]} - b[i], 2);
  return std::sqrt(squares);
}

TEST(PowerSgdProductsAreThoseOfTheMatrix) {
  check::ForSeeds(20, [](std::uint64_t seed) {
    Random random(seed);
    const std::uint64_t elements = Between(random, 1, 3000);
    const Shape shape = ShapeOf(elements, Between(random, 1, 5));
    const auto [rows, columns, rank] = shape;
    CHECK(rows * columns >= elements && (rows - 1) * columns < elements);
    CHECK(rank <= std::min(rows, columns));
    const Values m = Draw(random, elements), u = Draw(random, rows * rank);
    const Values v = Draw(random, columns * rank);
    const auto at = [&](std::uint64_t i, std::uint64_t j) {
      return i * columns + j < elements ? double{m[i * columns + j]} : 0;
    };
    Values mv(rows * rank), mu(columns * rank), product = m;
    powersgd::TimesColumns(shape, m.data(), elements, v.data(), mv.data());
    powersgd::TimesRows(shape, m.data(), elements, u.data(), mu.data());
    powersgd::Product(shape, u.data(), v.data(), elements, powersgd::Into::kAdd, product.data());
    for (std::uint64_t k = 0; k < rank; ++k) {
      std::vector<double> by_row(rows, 0.0), by_column(columns, 0.0);
      for (std::uint64_t i = 0; i < rows; ++i) {
        for (std::uint64_t j = 0; j < columns; ++j) {
          by_row[i] += at(i, j) * v[k * columns + j];
          by_column[j] += at(i, j) * u[k * rows + i];
        }
      }
      for (std::uint64_t i = 0; i < rows; ++i) CHECK_NEAR(mv[k * rows + i], by_row[i], 1e-4);
      for (std::uint64_t j = 0; j < columns; ++j) CHECK_NEAR(mu[k * columns + j], by_column[j], 1e-4);
    }
    for (std::uint64_t at = 0; at < elements; ++at) {
      double expected = m[at];
      for (std::uint64_t k = 0; k < rank; ++k) {
        expected += double{u[k * rows + at / columns]} * v[k * columns + at % columns];
      }
      CHECK_NEAR(product[at], expected, 1e-4);
    }
  });
}

// Also of columns that are zero, depend on each other, or are not finite.
TEST(PowerSgdBasisIsOneWhateverItIsMadeOf) {
  constexpr std::uint64_t kLength = 20, kRank = 4;
  Random random(1);
  const Values some = Draw(random, kLength * kRank);
  Values zero(kLength * kRank), dependent = some, bad = some;
  std::copy_n(some.begin(), kLength, dependent.begin() + kLength);
  for (std::uint64_t i = 0; i < kLength; ++i) dependent[2 * kLength + i] = 3 * some[i];
  bad[25] = std::nanf("");
  bad[45] = HUGE_VALF;
  for (const Values& columns : {some, zero, dependent, bad}) {
    Values basis = columns;
    powersgd::Orthonormalise(basis, kLength, kRank, 1);
    const auto dot = [&](const Values& a, std::uint64_t i, std::uint64_t j) {
      return std::inner_product(a.begin() + i * kLength, a.begin() + (i + 1) * kLength,
                                basis.begin() + j * kLength, 0.0);
    };
    for (std::uint64_t i = 0; i < kRank; ++i) {
      double inside = 0;
      for (std::uint64_t j = 0; j < kRank; ++j) {
        CHECK_NEAR(dot(basis, i, j), i == j, 1e-6);
        inside += std::pow(dot(columns, i, j), 2);
      }
      const auto column = std::span(columns).subspan(i * kLength, kLength);
      const double all = std::inner_product(column.begin(), column.end(), column.begin(), 0.0);
      if (std::isfinite(all)) CHECK_NEAR(inside, all, 1e-4);
    }
  }
}

TEST(PowerSgdLosesNothing) {
  check::ForSeeds(10, [](std::uint64_t seed) {
    Random random(seed);
    const std::uint64_t elements = Between(random, 200, 3000), rank = Between(random, 1, 4);
    for (const char* name : kNames) {
      CodecChain chain = Chain(name, rank, elements, Between(random, 1, 2));
      if (chain.Layout(elements).Find("values") != nullptr) continue;  // dense is not longer
      check::LosesNothing(chain, elements, 1, 6, random);
    }
  });
}

TEST(PowerSgdSendsAllInTheLastRound) {
  Random random(1);
  for (const char* name : kNames) {
    CodecChain chain = check::ChainOf(name, {{"rank", 2}, {"dense_rounds", 1}, {"flush", 1}}, 2000);
    check::LastSendsAll(chain, 2000, 4, random);
  }
}

// What parties encode adds up to what their sum encodes, and decodes to equal bits at all of them.
TEST(PowerSgdIsLinear) {
  check::ForSeeds(10, [](std::uint64_t seed) {
    Random random(seed);
    const std::uint64_t elements = Between(random, 200, 3000);
    const std::uint64_t dense_rounds = Between(random, 0, 1);
    std::vector<CodecChain> parties;
    for (int i = 0; i < 3; ++i) parties.push_back(Chain("powersgd", 3, elements, dense_rounds));
    CodecChain together = Chain("powersgd", 3, elements, dense_rounds);
    CHECK(together.Linear() && !Chain("powersgd_own", 3, elements).Linear());
    for (Round round = 1; round <= 5; ++round) {
      Values whole(elements, 0.0f);
      Buffer sum;
      for (CodecChain& party : parties) {
        const Values fed = Draw(random, elements);
        const Buffer one = Encoded(party, fed, round);
        sum.resize(one.size(), 0.0f);
        for (std::size_t i = 0; i < elements; ++i) whole[i] += fed[i];
        for (std::size_t i = 0; i < one.size(); ++i) sum[i] += one[i];
      }
      const Buffer expected = Encoded(together, whole, round);
      CHECK_EQ(expected.size(), sum.size());
      for (std::size_t i = 0; i < sum.size(); ++i) CHECK_NEAR(sum[i], expected[i], 1e-3);
      const Buffer arrived = parties[0].Decoded(sum, elements, round);
      for (CodecChain& party : parties) {
        CHECK(party.Decoded(sum, elements, round) == arrived);
        party.Settle(sum, elements, round);
      }
      together.Settle(sum, elements, round);
    }
  });
}

// The same matrix again and again, and nothing of earlier rounds: as good as the best matrix of the rank,
// whose error is the rest of the spectrum (Eckart and Young, 1936).
TEST(PowerSgdFindsTheBestMatrixOfItsRank) {
  constexpr std::uint64_t kSide = 32, kRank = 4;
  Random random(1);
  std::vector<double> spectrum(kSide);
  for (std::size_t k = 0; k < kSide; ++k) spectrum[k] = std::pow(0.8, k);
  double best = 0;
  for (std::size_t k = kRank; k < kSide; ++k) best += spectrum[k] * spectrum[k];
  best = std::sqrt(best);
  const Values matrix = WithSpectrum(spectrum, kSide, random);
  for (const char* name : kNames) {
    CodecChain chain = Chain(name, kRank, matrix.size());
    double error = 0;
    for (Round round = 1; round <= 40; ++round) {
      Values fed = matrix;
      const std::span<const float> kept = chain.Kept();
      for (std::size_t i = 0; i < kept.size(); ++i) fed[i] -= kept[i];
      error = NormOfDifference(Send(chain, fed, random, round), matrix);
    }
    CHECK(best <= error * 1.0001);
    CHECK(error < 1.02 * best);
  }
}

TEST(PowerSgdOfAMatrixOfItsRankArrivesWhole) {
  Random random(1);
  const Values matrix = WithSpectrum({1, 1, 1}, 32, random);
  for (const char* name : kNames) {
    CodecChain chain = Chain(name, 3, matrix.size());
    std::vector<double> missing(matrix.size(), 0.0);
    for (Round round = 1; round <= 4; ++round) {
      const Values sent = Send(chain, matrix, random, round);
      for (std::size_t i = 0; i < sent.size(); ++i) missing[i] += double{matrix[i]} - sent[i];
    }
    for (const double each : missing) CHECK_NEAR(each, 0, 1e-3);  // late, but all of it
    // A dense round gives the basis, so that nothing is late.
    CodecChain later = Chain(name, 3, matrix.size(), 1);
    CHECK(Send(later, matrix, random, 1) == matrix);
    CHECK_NEAR(NormOfDifference(Send(later, matrix, random, 2), matrix), 0, 1e-4);
  }
}

TEST(PowerSgdContinuesFromASavedState) {
  constexpr std::uint64_t kElements = 1500;
  Random random(1);
  for (const char* name : kNames) {
    CodecChain chain = Chain(name, 3, kElements, 1), other = Chain(name, 3, kElements, 1);
    for (Round round = 1; round <= 3; ++round) Send(chain, Draw(random, kElements), random, round);
    std::vector<std::byte> saved;
    Archive writing([&](Bytes bytes) { saved.insert(saved.end(), bytes.begin(), bytes.end()); });
    chain.Exchange(writing);
    Archive reading{Bytes(saved)};
    other.Exchange(reading);
    reading.End();
    for (Round round = 4; round <= 5; ++round) {
      const Values fed = Draw(random, kElements);
      CHECK(Send(chain, fed, random, round) == Send(other, fed, random, round));
    }
  }
}

TEST(PowerSgdSizesFollowTheFormula) {
  const auto bytes = [](const std::string& name, std::uint64_t rank, std::uint64_t elements,
                        Round round, std::uint64_t dense_rounds = 0) {
    const Parts layout = Chain(name, rank, elements, dense_rounds).Layout(elements, round);
    return layout.SliceBytes(0, layout.rows);
  };
  CHECK_EQ(bytes("powersgd", 4, 16'384, 1), 4 * 4 * 128u);
  CHECK_EQ(bytes("powersgd", 4, 32'768, 1), 4 * 4 * 256u);  // U has the rows of 256 x 128
  CHECK_EQ(bytes("powersgd", 4, 32'768, 2), 4 * 4 * 128u);
  CHECK_EQ(bytes("powersgd_own", 4, 32'768, 1), 4 * 4 * 384u);
  CHECK_EQ(bytes("powersgd", 2, 10'007, 1), 4 * 2 * 100u);  // a prime: 100 x 101, with zeros
  CHECK_EQ(bytes("powersgd", 2, 10'007, 2), 4 * 2 * 101u);
  CHECK_EQ(bytes("powersgd", 4, 16'384, 2, 2), 4 * 16'384u);
  CHECK_EQ(bytes("powersgd", 4, 16'384, 3, 2), 4 * 4 * 128u);
  CHECK_EQ(bytes("powersgd", 8, 64, 2), 4 * 64u);  // dense is not longer
  // 65 rows of 128, as this tensor has, and not the more square 80 of 104.
  CHECK_EQ(ShapeOf(65 * 128, 4).columns, 128u);
}

TEST(PowerSgdSendsNaN) {
  Random random(1);
  for (const char* name : kNames) {
    CodecChain chain = Chain(name, 3, 1024);
    check::SendsNaN(chain, 1024, 5 * 32 + 5, 0, random);
  }
}

}  // namespace
}  // namespace geomx
