// The coordinator of a ring (Patarasuk and Yuan, JPDC 69(2), 2009): one plan per root, made once, for all
// shards and all rounds.
//
// The root is beside the member at `home`. Contributions start at the next member, and each member adds its
// own and sends the sum to its next one; home sends all of it to the root. The value goes from the root to
// home, and around the ring from there. With a root beside every member, each link of the ring carries all
// parts but one in each direction of the round: 2 (n - 1) / n of the model.
#include <cstdint>
#include <cstdio>
#include <map>
#include <set>
#include <stdexcept>
#include <vector>

#include "core/natives.h"
#include "core/overlay_group.h"

namespace geomx {
namespace {

class Ring final : public Coordinator {
 public:
  // "place I": the member at position I; "home R": the position beside the root R.
  explicit Ring(const Options& options) {
    std::map<std::uint32_t, NodeId> places;
    for (const auto& [name, value] : options) {
      std::uint32_t number = 0;
      if (std::sscanf(name.c_str(), "place %u", &number) == 1) places[number] = static_cast<NodeId>(value);
      if (std::sscanf(name.c_str(), "home %u", &number) == 1) homes_[number] = static_cast<std::size_t>(value);
    }
    for (const auto& [place, member] : places) members_.push_back(member);
    for (const auto& [root, home] : homes_) {
      if (home >= members_.size()) throw std::invalid_argument("a root of the ring needs a place beside it");
    }
  }

  // The first report about a root is answered with its plan; later ones came before it had arrived.
  std::vector<Reply> OnReport(NodeId, std::span<const double> values, Time) override {
    const auto report = OverlayReport::Unpack(values);
    if (!report) return {};
    const auto found = homes_.find(report->root);
    if (found == homes_.end() || !planned_.insert(report->root).second) return {};
    const auto [root, home] = *found;
    std::vector<Reply> replies;
    const auto tell = [&](NodeId node, Direction direction, std::uint32_t awaited, std::vector<NodeId> targets) {
      const OverlayPlan plan{direction, root, awaited, false, std::move(targets)};
      replies.push_back({node, plan.Pack()});
    };
    const std::size_t count = members_.size();
    for (std::size_t step = 1; step <= count; ++step) {  // the last is home
      const NodeId member = members_[(home + step) % count], next = members_[(home + step + 1) % count];
      tell(member, Direction::kPush, step > 1 ? 1 : 0, {step < count ? next : root});
    }
    tell(root, Direction::kPush, 0, {});
    tell(root, Direction::kPull, 0, {members_[home]});
    for (std::size_t step = 0; step < count; ++step) {
      const NodeId member = members_[(home + step) % count], next = members_[(home + step + 1) % count];
      if (step + 1 < count) {
        tell(member, Direction::kPull, 0, {next});
      } else {
        tell(member, Direction::kPull, 0, {});
      }
    }
    return replies;
  }

  void Exchange(Archive& archive) override { archive(planned_); }

 private:
  std::vector<NodeId> members_;  // in the order of the ring
  std::map<NodeId, std::size_t> homes_;  // by root
  std::set<NodeId> planned_;
};

const Registered<NativeCoordinators> registered("ring", [](const Options& options) {
  return std::make_shared<Ring>(options);
});

}  // namespace
}  // namespace geomx
