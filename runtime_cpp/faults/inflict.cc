// What the drawn faults do to a world.
#include <algorithm>

#include "faults/world.h"

namespace geomx::faults {
namespace {

constexpr Time kRetry = 50 * kMillisecond;

}  // namespace

bool World::MayBeKilled(NodeId id) const {
  const Member& member = members_.at(id);
  if (!member.process) return false;
  if (KeepsJournal(id) || experiment_.on_loss == OnLoss::kWait) return id == kScheduler || member.journal.begun;
  const Member& scheduler = members_.at(kScheduler);
  if (!scheduler.process || !scheduler.process->runs()) return false;
  return experiment_.on_loss == OnLoss::kContinue || member.process->runs();
}

void World::ForEnds(const Fault& fault, const std::function<void(NodeId, NodeId)>& act) {
  if (fault.node != fault.other) return act(fault.node, fault.other);
  for (const Peer& peer : layout_.Config(fault.node).peers) act(fault.node, peer.id);
}

void World::Inflict(const Fault& fault) {
  // A loss before the start ends the run for any faults.on_loss, so the fault is postponed.
  const Member& scheduler = members_.at(kScheduler);
  const bool begun = scheduler.process && scheduler.process->node()->started();
  if (experiment_.on_loss != OnLoss::kWait && !begun) {
    agenda_.Add(now() + kRetry, [this, fault] { Inflict(fault); });
    return;
  }
  const Time end = now() + fault.lasts;
  healed_ = std::max(healed_, end);
  const auto disturb = [&] {
    ForEnds(fault, [&](NodeId one, NodeId other) { suspicions_.Disturb(one, other, end); });
  };
  Note(fault.node, ToString(fault));
  switch (fault.what) {
    case Fault::What::kReset:
      disturb();
      return ForEnds(fault, [this](NodeId one, NodeId other) { network_->Reset(one, other); });
    case Fault::What::kCut:
      disturb();
      ForEnds(fault, [this](NodeId one, NodeId other) { network_->Cut(one, other); });
      return agenda_.Add(end, [this, fault] {
        ForEnds(fault, [this](NodeId one, NodeId other) { network_->Heal(one, other); });
      });
    case Fault::What::kPause: {
      Time& until = members_[fault.node].paused_until;
      until = std::max(until, end);
      closings_.OnPause(fault.node, end);
      return suspicions_.Disturb(fault.node, end);
    }
    case Fault::What::kKill:
      if (!MayBeKilled(fault.node)) return;
      if (experiment_.on_loss == OnLoss::kStop) gone_ = fault.node;
      return Kill(fault.node, fault.lasts, fault.told, fault.written, "is killed");
    case Fault::What::kJoin: return Begin(fault.node);
    case Fault::What::kLeave:
      if (members_[fault.node].trainer) members_[fault.node].trainer->LeaveSoon();
      return;
  }
}

}  // namespace geomx::faults
