// The node with which a standby is a member of the run. See standby.h.
#include "core/node.h"

namespace geomx {
namespace {

class StandbyMember final : public RoleLogic {
 public:
  explicit StandbyMember(Node& node) : RoleLogic(node) {}

  void OnValue(NodeId peer, const Header& header, Buffer value, Time now) override {
    (void)header, (void)value, (void)now;
    node_.Fail(peer, "data for a standby");
  }
  void OnControl(NodeId, const Message&, Time) override {}  // the driver has the records
  void Describe(Digest& digest) const override { digest.Unknown(); }
  void Exchange(Archive&) override {}
  void ListWaits(Waits&) const override {}
};

}  // namespace

std::unique_ptr<RoleLogic> MakeStandby(Node& node) { return std::make_unique<StandbyMember>(node); }

}  // namespace geomx
