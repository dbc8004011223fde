// The part of a node that its role decides: worker (worker.cc), local server (server.cc), global
// server (global_server.cc) and scheduler (scheduler.cc).
//
// A role handles complete values and control messages; slices, heartbeats and coordinators are the
// node's own. All calls come from the driver's thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/archive.h"
#include "core/digest.h"
#include "core/inbox.h"
#include "core/message.h"
#include "core/saved_shard.h"
#include "core/types.h"
#include "core/wait.h"

namespace geomx {

class Node;
class RoundTimes;

class RoleLogic {
 public:
  virtual ~RoleLogic() = default;
  // A complete value has arrived from `peer`. `value` is empty if phantom.
  virtual void OnValue(NodeId peer, const Header& header, Buffer value, Time now) = 0;
  // The same for a flow whose values stay encoded.
  virtual void OnEncoded(NodeId peer, const Header& header, Buffer encoded, Time now) {
    (void)peer, (void)header, (void)encoded, (void)now;
  }
  // The same for a node that borrows values (NodeConfig), whose rows are those of `rows`.
  virtual void OnBorrowed(NodeId peer, const Header& header, Borrowed rows, Time now) {
    (void)peer, (void)header, (void)rows, (void)now;
  }
  virtual void OnControl(NodeId peer, const Message& message, Time now) = 0;
  // Returns false if an initial value may still come, after which `Objection` knows the shard.
  virtual bool Knows(const Header& header) const { return (void)header, true; }
  // Returns false if an instruction is on its way without which the transfer cannot be used.
  virtual bool IsTold(const Header& header) const { return (void)header, true; }
  // Returns the reason to refuse the first transfer of a flow, before any memory is taken for it;
  // empty if there is none.
  virtual std::string Objection(NodeId from, const Header& header) const {
    (void)from, (void)header;
    return {};
  }
  // The connection to `peer` has ended for good. Reports the loss to the scheduler.
  virtual void OnLinkDown(NodeId peer, const std::string& reason, Time now);
  // A member, not necessarily a peer, is lost, or (`back`) a new process of it without the old
  // one's state takes part.
  virtual void OnMember(NodeId member, bool back, Time now) { (void)member, (void)back, (void)now; }
  // `peer` has sent a message although it is lost.
  virtual void OnLate(NodeId peer, const Message& message, Time now) {
    (void)peer, (void)message, (void)now;
  }
  // Returns true if the run goes on at once without `peer`: it has a standby, or is one. It counts as
  // lost as soon as it is suspect.
  virtual bool Dispensable(NodeId peer) const { return (void)peer, false; }
  // All members have finished.
  virtual void OnStop(Time now) { (void)now; }
  // Returns true if instructions about optimizers' states may come from above: they were asked for.
  virtual bool AsksStates() const { return false; }
  virtual void Describe(Digest& digest) const = 0;  // see Node::Describe
  // Writes or reads all state. REQUIRES: no device is at work.
  virtual void Exchange(Archive& archive) = 0;
  virtual void OnTimeout(Time now) { (void)now; }
  virtual Time NextTimeout() const { return kNever; }
  // Returns true if a message of this node is still to be answered: it does not leave before that.
  virtual bool Unanswered() const { return false; }
  virtual void ListWaits(Waits& waits) const = 0;  // see Node::ListWaits
  // A server's shards; REQUIRES: no device is at work.
  virtual std::vector<SavedShard> Saved() const { return {}; }
  // Of a server: how many of its shards have completed a round.
  virtual std::size_t ShardsWithRounds() const { return 0; }
  // Of a server; null: this is none.
  virtual const RoundTimes* times() const { return nullptr; }
  virtual void CountTimes() {}

 protected:
  explicit RoleLogic(Node& node) : node_(node) {}
  Node& node_;
};

std::unique_ptr<RoleLogic> MakeRole(Node& node);
std::unique_ptr<RoleLogic> MakeServer(Node& node);
std::unique_ptr<RoleLogic> MakeGlobalServer(Node& node);
std::unique_ptr<RoleLogic> MakeScheduler(Node& node);
std::unique_ptr<RoleLogic> MakeStandby(Node& node);
// The current value of a shard, or null. REQUIRES: `role` is a global server's.
const Buffer* GlobalValueOf(const RoleLogic& role, Key key, std::uint32_t shard);

}  // namespace geomx
