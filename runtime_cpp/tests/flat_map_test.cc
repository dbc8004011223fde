// Laws of FlatMap: results equal those of std::map with every hash function, and pointers to entries stay
// valid.
#include "core/flat_map.h"

#include <map>
#include <string>

#include "tests/check.h"
#include "tests/seeds.h"

namespace geomx {
namespace {

using check::Between;
using check::Random;

struct Spread {
  std::size_t operator()(std::uint64_t key) const { return key * 0x9e3779b97f4a7c15u; }
};
struct Crowd {  // few places, and the same tag for all
  std::size_t operator()(std::uint64_t key) const { return key % 3; }
};

template <class Hash>
void CompareWithMap(Random& random) {
  FlatMap<std::uint64_t, std::string, Hash> flat;
  std::map<std::uint64_t, std::string> known;
  std::map<std::uint64_t, std::string*> places;
  const std::uint64_t keys = Between(random, 1, 300);
  for (std::uint64_t left = Between(random, 0, 600); left > 0; --left) {
    const std::uint64_t key = Between(random, 0, keys);
    flat.PrefetchSlot(key);
    flat.PrefetchEntry(key);
    CHECK_EQ(flat.Find(key) != nullptr, known.contains(key));
    const std::string value = std::to_string(left);
    const auto [place, fresh] = flat.TryEmplace(key, value);
    CHECK_EQ(fresh, known.try_emplace(key, value).second);
    CHECK_EQ(*place, known.at(key));
    CHECK(places.try_emplace(key, place).first->second == place);
  }
  CHECK_EQ(flat.size(), known.size());
  for (const auto& entry : flat) CHECK_EQ(entry.second, known.at(entry.first));
  for (const auto& [key, place] : places) CHECK(flat.Find(key) == place);
}

TEST(FlatMapBehavesLikeAMap) {
  check::ForSeeds(50, [](std::uint64_t seed) {
    Random random(seed);
    CompareWithMap<Spread>(random);
    CompareWithMap<Crowd>(random);
  });
}

}  // namespace
}  // namespace geomx
