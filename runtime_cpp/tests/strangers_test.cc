// Who goes when there are too many callers: a flood displaces itself.
#include "io/strangers.h"

#include <map>

#include "tests/check.h"
#include "tests/seeds.h"

namespace geomx::io {
namespace {

using Said = Strangers::Said;

// Adds a caller as the driver does, and returns the one that was dropped for it; 0: none.
std::uint64_t Add(Strangers& strangers, std::uint64_t id, const std::string& host) {
  std::uint64_t gone = 0;
  if (strangers.Full(host)) {
    gone = strangers.Victim(host);
    CHECK(strangers.Remove(gone));
  }
  strangers.Add(id, host);
  return gone;
}

TEST(strangers_of_one_host_displace_each_other) {
  Strangers strangers;
  CHECK_EQ(Add(strangers, 1, "member"), 0u);
  for (std::uint64_t id = 2; id < 1000; ++id) {
    const std::uint64_t gone = Add(strangers, id, "flood");
    CHECK_EQ(gone, id < 2 + Strangers::kMostOfOneHost ? 0u : id - Strangers::kMostOfOneHost);
  }
  CHECK_EQ(strangers.oldest(), 1u);
}

TEST(strangers_that_said_more_stay_longer) {
  Strangers strangers;
  Add(strangers, 1, "host");
  Add(strangers, 2, "host");
  strangers.Advance(1, Said::kHello);
  strangers.Advance(2, Said::kSomething);
  strangers.Advance(1, Said::kSomething);  // it does not take that back
  for (std::uint64_t id = 3; id < 1000; ++id) CHECK(Add(strangers, id, "host") != 1);
  CHECK(strangers.Remove(1));
  CHECK(!strangers.Remove(1));
}

// From however many hosts: there is an end to all, and a member's host is the last to lose a caller.
TEST(strangers_have_bounds_and_members_a_place) {
  check::ForSeeds(50, [](std::uint64_t seed) {
    check::Random random(seed);
    Strangers strangers;
    strangers.Reserve("member");
    std::map<std::uint64_t, std::string> hosts;
    std::map<std::string, std::size_t> of_host;
    const std::uint64_t count = check::Between(random, 1, 400);
    Add(strangers, 1, "member");
    for (std::uint64_t id = 2; id < 800; ++id) {
      const std::string host = "host" + std::to_string(check::Between(random, 1, count));
      hosts[id] = host;
      ++of_host[host];
      const std::uint64_t gone = Add(strangers, id, host);
      CHECK(gone != 1);
      if (const auto found = hosts.find(gone); found != hosts.end()) {
        --of_host[found->second];
        hosts.erase(found);
      }
      CHECK(strangers.size() <= Strangers::kMost);
      CHECK_EQ(strangers.size(), hosts.size() + 1);
      CHECK(of_host[host] <= Strangers::kMostOfOneHost);  // no other has grown
    }
  });
}

}  // namespace
}  // namespace geomx::io
