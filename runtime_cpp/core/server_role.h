// What local and global servers share: shards whose rounds are sums of what the children push.
//
// A function that returns false or nothing has already reported the peer at fault to the driver, or
// the refused instruction to the application; the caller then only returns.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/admission.h"
#include "core/aggregator.h"
#include "core/early_rounds.h"
#include "core/flat_map.h"
#include "core/node.h"
#include "core/optimizer_states.h"
#include "core/replica.h"
#include "core/role.h"
#include "core/round_times.h"

namespace geomx {

class ServerRole : public RoleLogic {
 public:
  const RoundTimes* times() const override { return &times_; }
  void CountTimes() override { times_.Begin(); }
  void OnTimeout(Time now) override;
  Time NextTimeout() const override { return closing_.empty() ? kNever : closing_.begin()->first; }

 protected:
  explicit ServerRole(Node& node)
      : RoleLogic(node), admission_(node), times_(node.config().children.size()) {}

  using ShardId = std::pair<Key, std::uint32_t>;
  struct ShardHash {
    std::size_t operator()(const ShardId& id) const {  // consecutive keys get consecutive hashes
      return (id.first | std::uint64_t{id.first} << 32) + id.second * 0x9e3779b97f4a7c15u;
    }
  };
  struct SummedShard {
    explicit SummedShard(const NodeConfig& config) : sum(config.children, config.quorum) {
      if (config.round_policy) early = std::make_unique<EarlyContributions>();
    }
    Aggregator sum;                              // without a round policy
    std::unique_ptr<EarlyContributions> early;  // with one; else null
    ShardTerms terms;
    Round round = 0;              // the last one that was completed here
    std::uint32_t steps = 0;      // of the contributions to the open round; see Header::steps
    bool present = false;         // a contribution to the open round is not absent
    bool ends = true;             // all contributors to the open round have pushed for the last time
    Replica weights;              // where the optimizer runs
    std::vector<NodeId> waiting;  // children that requested the value before there was one
    bool updating = false;        // a device is at work on the weights
    RoundPhase phase = RoundPhase::kNone;  // for reports
    Header given = {};            // of the last contribution, if rounds may close early
    std::map<NodeId, Header> asked = {};  // last requests of waiting children
    // Of children that have come back: first rounds here that are earlier than elsewhere (AdmitToSeldom).
    std::map<NodeId, Round> firsts = {};
    std::list<std::function<void(Time)>> deferred;  // actions after the update, in order
  };

  // Defers `action(now)` until a device has updated the shard. Returns false if none is updating
  // it: the caller then proceeds at once. A shard's messages are thus handled in their order,
  // without holding up other shards.
  template <class Action>
  static bool Defer(SummedShard& shard, Action action) {
    if (!shard.updating) return false;
    shard.deferred.push_back(std::move(action));
    return true;
  }
  // Applies `gradient` to the shard's weights. Returns true if that is done; otherwise a device is
  // updating them, and the caller passes the rest to WhenUpdated.
  bool Update(const Header& header, SummedShard& shard, Buffer gradient,
              const std::optional<OptimizerSpec>& optimizer, const GradientSource& from,
              bool accumulate);
  // Sends the optimizer's state to a worker, or continues from it: see core/optimizer_states.h.
  void SendState(NodeId child, NodeId worker, std::pair<Key, std::uint32_t> id, SummedShard& shard);
  void LoadState(const OptimizerPart& part, const std::optional<OptimizerSpec>& spec, SummedShard& shard);
  bool AsksStates() const override { return asks_states_; }
  // Why no server can carry out a worker's instruction; empty if one can. Expects states from above if
  // it asks for them.
  std::string Wrong(const std::string& text);
  // Passes a state from above on to the worker that has asked for it. Returns false for an
  // instruction that this node is to obey.
  bool PassState(NodeId parent, const std::string& text, const Message& message);
  // Drops the state of the previous optimizer.
  static void ForgetOptimizer(SummedShard& shard) {
    if (!Defer(shard, [&shard](Time) { shard.weights.ForgetOptimizer(); })) {
      shard.weights.ForgetOptimizer();
    }
  }
  // Calls `next(now)` when the weights are updated, and then the deferred actions.
  template <class Next>
  void WhenUpdated(SummedShard& shard, Next next) {
    shard.updating = true;
    node_.device().Then([&shard, next = std::move(next)](Time now) {
      shard.weights.Complete();
      shard.updating = false;
      next(now);
      RunDeferred(shard, now);
    });
  }

  // Returns true if the shard is, with this value at the latest, settled as `header` says (see
  // admission.h). Children with another claim wait no more.
  bool Settle(NodeId peer, const Header& header, SummedShard& shard);
  // Returns false for a push that is refused; docs/protocol.md lists the reasons.
  bool IsAcceptable(NodeId peer, const Header& header, const SummedShard& shard, const Buffer& value);
  // Adds an acceptable push to the open round.
  bool Contribute(NodeId peer, const Header& header, SummedShard& shard, Buffer value, Time now);
  // Returns true if all participants of the open round have contributed.
  bool Complete(const SummedShard& shard) const;
  // Scales a sum of `merge_count` workers' contributions by expected / merge_count, so that it
  // estimates the sum over `expected` workers, and sets `merge_count` to `expected`. Returns true if the sum has
  // changed.
  static bool MakeUp(Buffer& sum, std::uint32_t& merge_count, std::uint32_t expected);
  // The number of workers in the open round.
  static std::uint32_t Workers(const SummedShard& shard) {
    return shard.early ? shard.early->Workers() : shard.sum.merge_count();
  }
  // Counts a round that is about to close without some children, or with late contributions, and returns
  // the event that reports it; nothing if all take part in time.
  std::optional<Event> Partial(const Header& header, const SummedShard& shard) const;
  // Call it for every contribution to the open round.
  void NoteContribution(NodeId peer, const Header& header, SummedShard& shard, Time now);
  // For reports: the contributions to the open round are about to be taken. `phase`: what follows.
  void NoteClosing(SummedShard& shard, RoundPhase phase, Time now);
  // The place of a child in NodeConfig::children.
  std::size_t PlaceOf(NodeId child) const;
  // Reports a push that is not of round `expected`.
  void FailRound(NodeId peer, const Header& header, Round expected);
  // The flags of a complete sum: `kAbsent` if all contributions were absent, `kLast` if all were the
  // last of their kind.
  std::uint8_t TakeFlags(SummedShard& shard);

  // Sends the result of a round.
  void SendResult(Header header, Round round, std::uint32_t merge_count,
                  const std::shared_ptr<const Buffer>& value, std::span<const NodeId> targets,
                  Time now);
  // Sends the current value, not encoded, to nodes that requested it.
  void SendCurrent(const SummedShard& shard, Header header, Round round, const std::shared_ptr<const Buffer>& value,
                   std::span<const NodeId> targets, Time now);
  // Returns false if `peer` waits already.
  static bool AddWaiting(SummedShard& shard, NodeId peer);

  // ---- members that are lost and come back (NodeConfig::continues) ----
  // Returns true if `child` takes part in this round of all shards, or of this one.
  bool TakesPart(NodeId child, Round round) const;
  bool TakesPart(NodeId child, const SummedShard& shard, Round round) const;
  // The participants of this round of a shard.
  std::vector<NodeId> Participants(const SummedShard& shard, Round round) const;
  // Returns true if `child` is neither lost nor has left.
  bool Present(NodeId child) const;
  std::uint32_t PresentChildren() const;
  // `child` has come back. Its first round is set when it requests a value (Admit).
  void Await(NodeId child) { first_rounds_[child] = kNotAsked; }
  bool HasComeBack(NodeId child) const { return first_rounds_.contains(child); }
  // Whether `child` has come back, has requested a value, and has contributed nothing since.
  bool IsReturning(NodeId child) const { return returning_.contains(child); }
  // `child` requests a value; if it has come back, it takes part from round `next` on, for all
  // shards.
  void Admit(NodeId child, Round next);
  // The round from which `child` takes part, if it has come back and was admitted.
  Round Admitted(NodeId child) const { return first_rounds_.at(child); }
  // `child`, which has been admitted and has no value yet, takes part from a later round on.
  void Postpone(NodeId child, Round first);
  // Returns true if `child` takes part in the next round, and so may have the value of the last
  // one.
  bool MayHave(NodeId child, const SummedShard& shard) const;
  // Sends the current value to a waiting child, as the answer to its last request.
  void AnswerRequest(SummedShard& shard, NodeId child, Round round,
                     const std::shared_ptr<const Buffer>& value, Time now);
  // Skips to the last round before the waiting children take part, if no other child would end the
  // rounds in between.
  void SkipEmptyRounds(SummedShard& shard);
  // The open round or, if none is open, the next.
  static Round OpenRound(const SummedShard& shard) {
    return shard.round + (shard.sum.merge_count() > 0 ? 1 : 0);
  }
  static SavedShard SavedOf(const ShardId& id, const SummedShard& shard, Round round) {
    return {id.first, id.second, round, shard.weights.value(), shard.weights.SaveOptimizer()};
  }
  // The latest open round of any shard.
  template <class Shards>
  static Round LatestOpen(const Shards& shards) {
    Round open = 0;
    for (const auto& [id, shard] : shards) open = std::max(open, OpenRound(shard));
    return open;
  }
  // Lets children that have come back, except for some, take part in tensors that are pushed less often than others,
  // or never, from the next round of these on, and calls `answer` with their shards, once the children may have the
  // values of all other tensors. Without it, the children would wait for rounds that do not come, and the next
  // round of the other tensors for the children. A push has the same round in all shards of its tensor, so the
  // values of these are given only where all have completed the same round.
  template <class Shards, class Answer>
  void AdmitToSeldom(Shards& shards, const std::set<NodeId>& except, Answer answer) {
    for (const NodeId child : std::set(returning_)) {
      const Round first = first_rounds_.at(child);
      if (first <= 1 || !Present(child) || except.contains(child)) continue;
      const Round latest = std::max(LatestOpen(shards), first - 1);
      const auto lacks = [&](const SummedShard& shard) {
        return OpenRound(shard) + 1 >= latest && shard.round + 1 < first;
      };
      bool may = true;  // have the values of all that are pushed in every step
      for (auto each = shards.begin(); may && each != shards.end(); ++each) may = !lacks((*each).second);
      if (may) GiveSeldom(shards, child, latest, answer);
    }
  }
  template <class Shards, class Answer>
  void GiveSeldom(Shards& shards, NodeId child, Round latest, Answer answer) {
    struct Tensor {
      Round round = 0;
      bool known = false, waits = false, apart = false;
    };
    std::map<Key, Tensor> tensors;
    for (const auto& [id, shard] : shards) {
      Tensor& tensor = tensors[id.first];
      tensor.waits |= std::find(shard.waiting.begin(), shard.waiting.end(), child) != shard.waiting.end();
      tensor.apart |= OpenRound(shard) + 1 >= latest || OpenRound(shard) > shard.round || shard.updating;
      tensor.apart |= std::exchange(tensor.known, true) && shard.round != tensor.round;
      tensor.round = shard.round;
    }
    for (auto& [id, shard] : shards) {
      const Tensor& tensor = tensors[id.first];
      if (!tensor.apart && tensor.waits) shard.firsts.emplace(child, shard.round + 1);
    }
    for (auto& [id, shard] : shards) {
      if (shard.firsts.contains(child)) answer(shard);
    }
  }

  // ---- rounds that close without children that are late (early_rounds.cc) ----
  // Whether this server's do.
  bool early() const { return node_.config().round_policy != nullptr; }
  enum class Taken { kRefused, kInTime, kLate, kDropped };
  // Takes a push that was made for round `meant`, which is at most the next one. The caller asks CloseIfDue.
  Taken TakeEarly(NodeId peer, Header header, Round meant, SummedShard& shard, Buffer value, Time now);
  // Closes the open round if no contribution is awaited, or if the policy says so.
  void CloseIfDue(SummedShard& shard, Time now);
  // Whether the open round may close; otherwise it stays open until CloseIfDue is called again.
  virtual bool MayClose(const SummedShard& shard) const {
    (void)shard;
    return true;
  }
  // Whether the policy is asked; otherwise the open round waits for all that are awaited.
  virtual bool MayCloseEarly(const SummedShard& shard) const {
    (void)shard;
    return true;
  }
  // Whether a child may push the shard again.
  virtual bool WillPush(NodeId child, const SummedShard& shard) const { return !shard.early->finished.contains(child); }
  // Whether a child that takes part can push the shard before its open round has closed.
  virtual bool CanPush(NodeId child, const SummedShard& shard) const {
    (void)child, (void)shard;
    return true;
  }
  // Notes at which barrier a child waits, which all others have to come to; 0: at none.
  void NoteBarrier(NodeId child, Round barrier) { barriers_[child] = barrier; }
  Round BarrierOf(NodeId child) const {
    const auto found = barriers_.find(child);
    return found == barriers_.end() ? 0 : found->second;
  }
  void ForgetBarrier(NodeId child) { barriers_.erase(child); }
  // Whether `child` waits at a barrier for one of these, whose pushes are unanswered. A round that waited for
  // `child`, on which such an answer depends, would never continue.
  bool WaitsAtBarrierFor(NodeId child, const std::set<NodeId>& unanswered) const;
  // Closes a round that has contributions.
  virtual void CloseOpen(SummedShard& shard, Time now) = 0;
  virtual SummedShard& Find(const ShardId& id) = 0;
  // Children without a contribution in time; of these, the ones that are awaited.
  std::vector<NodeId> Lacking(const SummedShard& shard) const;
  std::vector<NodeId> Awaited(const SummedShard& shard) const;
  // The sum of a round, the number of workers that it stands for, and how many workers' worth of factors it
  // lacks to be a weighted mean times that number: less than 0 or more than 0 if weights are not Relative.
  struct EarlySum {
    Buffer value = {};
    std::uint32_t workers = 0;
    double lacks = 0;
  };
  // Returns the sum of the open round, and starts the next one.
  EarlySum TakeSum(SummedShard& shard);
  // The children to be answered when the open round closes.
  std::vector<NodeId> TakeDue(SummedShard& shard);

  // The text of a command message.
  std::optional<std::string> Text(NodeId peer, const Message& message);
  // Why no server can carry out an instruction; empty if one can.
  std::string Impossible(const std::string& text) const;
  // The optimizer that an instruction names.
  std::optional<OptimizerSpec> ParseOptimizer(const std::string& text);

  // Children that take part neither in the open round nor in any later one: workers that sent bye,
  // or parties whose workers all have, or are lost.
  const std::set<NodeId>& left() const { return left_; }
  // Returns false if it was known.
  bool AddLeft(NodeId child) { return left_.insert(child).second; }
  void ForgetLeft(NodeId child) { left_.erase(child); }
  // Reports a loss if the open round waits for a child that has left.
  void CheckLeft(Key key, const SummedShard& shard);
  // Adds the children that the open round waits for.
  void AddWaits(Key key, const SummedShard& shard, Waits& waits) const;

  // What all servers keep besides their shards, and a shard's part of it.
  void ExchangeCommon(Archive& archive) {
    archive(admission_, asks_states_, told_, loading_, left_, first_rounds_, returning_, closing_, barriers_);
    if (early()) node_.config().round_policy->Exchange(archive);
  }
  static void ExchangeShard(Archive& archive, SummedShard& shard, const std::optional<OptimizerSpec>& spec,
                            Key key) {
    archive(shard.sum, shard.terms, shard.round, shard.steps, shard.present, shard.ends, shard.waiting, shard.given, shard.asked,
            shard.firsts);
    if (shard.early) archive(*shard.early);
    shard.weights.Exchange(archive, spec, key);
  }
  void ExchangeSpecs(Archive& archive, std::map<NodeId, std::optional<OptimizerSpec>>& specs) const {
    std::set<NodeId> whose;
    for (const auto& [id, spec] : specs) whose.insert(id);
    archive(whose);
    for (const NodeId id : whose) ExchangeSpec(archive, specs[id]);
  }
  void ExchangeSpec(Archive& archive, std::optional<OptimizerSpec>& spec) const {
    bool there = spec.has_value();
    archive(there);
    if (archive.loading()) spec = there ? std::optional<OptimizerSpec>(OptimizerSpec{}) : std::nullopt;
    if (there) spec->Exchange(archive, node_.config().optimizers);
  }

  Admission admission_;
  RoundTimes times_;

 private:
  static constexpr Round kNotAsked = UINT32_MAX;

  EarlyRound Open(const SummedShard& shard, std::span<const NodeId> awaited) const;
  // The factors of contributions in the sum.
  std::vector<double> Weights(const SummedShard& shard) const;
  static ShardId IdOf(const SummedShard& shard) { return {shard.given.key, shard.given.shard}; }
  static void RunDeferred(SummedShard& shard, Time now);
  void Send(const Header& header, const std::shared_ptr<const Buffer>& value,
            std::span<const NodeId> targets, Time now);

  bool told_ = false;  // a contribution was made after the optimizer was set
  bool asks_states_ = false;  // a worker has asked for states, which come from above

  std::map<std::pair<Key, std::uint32_t>, std::string> loading_;  // parts of states that have arrived
  std::set<NodeId> left_;
  std::map<NodeId, Round> first_rounds_;  // of children that have come back
  std::set<NodeId> returning_;            // of these, those that have not contributed since
  std::set<std::pair<Time, ShardId>> closing_;  // open rounds, by the times at which they close
  std::map<NodeId, Round> barriers_;      // at which children wait, where rounds close early
};

}  // namespace geomx
