// A party's local server: sums its workers' pushes, asks the sync policy whether the sum goes to the
// global server or straight back, and hands every answer to all its workers. With a round policy, rounds
// close without workers that are late (party_early_rounds.cc). Where workers do not wait for each other, it
// answers each by itself (party_own_rounds.cc).
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "core/server_role.h"

namespace geomx {

class Server final : public ServerRole {
 public:
  explicit Server(Node& node) : ServerRole(node), policy_(node.config().policy) {
    if (!policy_) policy_ = std::make_shared<PartyPolicy>();
    if (!node.config().absent.empty()) TellPolicy();
  }

  void OnValue(NodeId peer, const Header& header, Buffer value, Time now) override;
  bool Knows(const Header& header) const override {
    return node_.config().declared || (Terms(header) != nullptr && Terms(header)->settled());
  }
  bool IsTold(const Header& header) const override;
  std::string Objection(NodeId from, const Header& header) const override;
  void OnLinkDown(NodeId peer, const std::string& reason, Time now) override;
  void OnControl(NodeId peer, const Message& message, Time now) override;
  void OnMember(NodeId member, bool back, Time now) override;
  void ListWaits(Waits& waits) const override;
  void Exchange(Archive& archive) override;
  std::vector<SavedShard> Saved() const override;
  std::size_t ShardsWithRounds() const override;
  void Describe(Digest& digest) const override;

 private:
  // A worker's state where workers do not wait for each other.
  struct Progress {
    Round round = 0;             // of its last push
    std::optional<Header> last;  // that push, if it will not push again: answered when no worker will

    void Exchange(Archive& archive) { archive(round, last); }
  };
  static constexpr Round kAnyRound = UINT32_MAX;
  // A worker's state with a round policy. It counts its own pushes, and rounds close without it.
  struct Pace {
    Round pushed = 0;  // of its last push; kAnyRound: it counts on from a round of its own choice
    Round base = 0;    // the party's round of the value that it was given last
    std::shared_ptr<const Buffer> value;  // this value, where parameters are pushed

    void Exchange(Archive& archive) { archive(pushed, base, value); }
  };
  struct Shard : SummedShard {
    using SummedShard::SummedShard;
    Round global_round = 0;  // the last one that was sent to the global server
    Round lead = 0;          // rounds that closed elsewhere without this party, in rounds of the party
    bool last = false;       // no worker will push again after the last round that closed
    bool escalated = false;               // an answer to `global_round` is due
    std::shared_ptr<const Buffer> value;  // last value for the workers; null: none yet
    NodeId parent = 0;                    // the last target
    bool stale = false;                   // other parties have continued without this one
    std::map<NodeId, Progress> workers;
    // ---- with a round policy ----
    std::map<NodeId, Pace> paces;
    std::vector<NodeId> answered;  // workers that the answer which is due is for
    std::set<NodeId> leaving;      // workers whose last push is unanswered: until no worker will push again
    // What late contributions to the open round were made from, by source and the round that they were for.
    std::map<std::pair<NodeId, Round>, std::shared_ptr<const Buffer>> bases;

    void Exchange(Archive& archive) {
      archive(global_round, lead, last, escalated, value, parent, stale, workers, paces, answered, leaving, bases);
    }
  };

  Shard& shard(const Header& header);
  const ShardTerms* Terms(const Header& header) const;
  // The global server of a shard.
  std::optional<NodeId> Parent(NodeId peer, const Header& header);
  // Forwards workers' instructions to the global servers; those of a global server apply to the
  // replicas here.
  void Command(NodeId peer, const Message& message);
  // Every global server repeats the instruction, at its own time: it is about its own shards.
  void Obey(NodeId parent, const std::string& text);
  void Bye(NodeId peer, Time now);

  // ---- workers that are lost and come back ----

  void TellPolicy();
  // Closes rounds that waited only for `child`. A party without workers tells the global servers.
  void CloseWithout(NodeId child, Time now);
  void Recheck(Shard& shard, Time now);
  // The first worker is back in a party that had none; global rounds have continued meanwhile.
  void Rejoin(Time now);
  void TellParents(std::uint32_t workers, Round first = 0);
  // Whether global servers must agree on the round from which this party takes part again. Otherwise a round
  // of one could wait for the party, the party for a value of another, and that for the round.
  bool MustAgree() const;
  // A global server has said from which round on this party could take part. When all have, it takes part from
  // the latest of these, and requests values.
  void OnAdmitted(NodeId parent, const Header& header);
  // Sends the value to workers that wait for it and may have it now.
  void AnswerWaiting(Shard& shard, Time now);
  // The same where shards are pushed less often than others.
  void AnswerSeldom(Time now) {
    AdmitToSeldom(shards_, {}, [=, this](Shard& shard) { AnswerWaiting(shard, now); });
  }

  // ---- rounds that close without workers that are late ----

  void PushEarly(NodeId peer, const Header& header, Shard& shard, Buffer value, Time now);
  // Not before the party knows at which round the other parties are.
  bool MayClose(const SummedShard& shard) const override { return !static_cast<const Shard&>(shard).stale; }
  // The last round waits for all workers.
  bool MayCloseEarly(const SummedShard& shard) const override { return !shard.early->Ends(); }
  void CloseOpen(SummedShard& shard, Time now) override {
    Close(shard.given, static_cast<Shard&>(shard), now);
    CloseLast(now);
  }
  // Closes last rounds that waited for workers who have come to wait for the answer to another round.
  void CloseLast(Time now);
  // `worker` waits for the answer that is due to the shard's round that was closed last.
  void AwaitAnswer(Shard& shard, NodeId worker);
  void EndWait(const Shard& shard, NodeId worker);
  void FindAwaited();  // after the shards were read
  std::vector<NodeId> TakeAnswered(Shard& shard);  // those who did
  SummedShard& Find(const ShardId& id) override { return *shards_.Find(id); }
  // Returns the sum of the open round, for all workers of the party.
  Buffer TakePartySum(Shard& shard, std::uint32_t& merge_count);
  // `worker` is given the value of the party's last round.
  void Give(Shard& shard, NodeId worker);
  // What `worker` pushed before it was lost is not to be answered.
  void ForgetPushes(NodeId worker, Time now);
  void ComeToBarrier(NodeId worker, Round barrier, Time now);
  // Tells the global servers at which barrier all workers of the party wait, as soon as nothing of theirs is left
  // to be sent.
  void TellBarrier();
  // Last pushes are answered when no worker will push again.
  bool WillPush(NodeId child, const SummedShard& shard) const override {
    return ServerRole::WillPush(child, shard) && !WaitsAtBarrierFor(child, static_cast<const Shard&>(shard).leaving);
  }
  // Not while it waits for the answer to a round that was closed, if it returns and that was without it, or if the
  // shard's round is the last, which has no deadline: it trains with all values. A round that waited for it could be
  // what the other parties, and so that answer, wait for.
  bool CanPush(NodeId worker, const SummedShard& shard) const override;
  bool Returns(NodeId worker) const;  // as said there
  // Notes that `worker` waits for such an answer, of `shard`, and lets rounds close that waited for it.
  void NoteLack(NodeId worker, const ShardId& shard, Time now);
  // No worker will push the shard again.
  bool HasEnded(const Shard& shard) const;
  // No worker will, and no contribution is left: all end with the current value, or the one that is due.
  bool IsOver(const Shard& shard) const { return HasEnded(shard) && !shard.early->open(); }
  // Answers last pushes if the value that all end with is there.
  void AnswerLeaving(Shard& shard, Time now);

  // ---- workers that do not wait for each other ----

  void Apply(NodeId peer, const Header& header, Shard& shard, Buffer encoded, Time now);
  // Sends what the policy has for the global server, unless an answer is due.
  void SendMove(Shard& shard, Time now);
  // Lets the policy have an answer; after the party's last push, the workers too.
  void Merge(Shard& shard, Buffer value, Time now);
  // Workers that will push this shard again.
  std::vector<NodeId> Unfinished(const Shard& shard) const;

  // ---- up ----

  void Forward(const Header& header, Buffer value, Time now);
  void Push(NodeId peer, const Header& header, Shard& shard, Buffer value, Time now);
  void Close(Header header, Shard& shard, Time now);
  // Replaces the party's sum by the optimizer's step (GlobalRounds::step_first). Returns false after
  // reporting why it cannot.
  bool Step(const Header& header, Shard& shard, NodeId parent, std::uint32_t workers, Buffer& sum);
  void Request(NodeId peer, const Header& header, Shard& shard, Time now);
  // Distinguishes requests after the last rejoin from earlier ones; not a valid number of workers.
  std::uint32_t Asking() const { return rejoined_ == 0 ? 0 : UINT32_MAX - rejoined_; }
  void Ask(NodeId peer, const Header& header, Shard& shard);

  // ---- down ----

  void Answer(NodeId peer, const Header& header, Shard& shard, Buffer value, Time now);
  // Handles the global server's answer, or the replica's new value.
  void Conclude(const Header& header, Shard& shard, Buffer value, Time now);
  // Adds what this party's codecs have not sent of its steps, or moves (which point backwards), in full: its own
  // workers need not wait, and do not make the same moves again. Sums of gradients, where no optimizer runs at
  // the party, are the same for all, and what was not sent follows. In the last round adds nothing: all workers
  // end with the same weights.
  void AddKept(const Header& header, const Shard& shard, Buffer& value);
  // Handles the current value that a worker has requested.
  void Initial(const Header& header, Shard& shard, Buffer value, Time now);
  // Continues after `rounds` of other parties. These may have completed more rounds of one shard than of
  // another. Where that may be more than one, workers continue at the same round of all: one that comes back takes
  // part from the same round of all shards on, too.
  void Begin(Shard& shard, Round rounds);
  // For reports: the round is over.
  void NoteNext(Shard& shard, Time now) {
    times_.Move(shard.phase, shard.last ? RoundPhase::kNone : RoundPhase::kCompute, now);
  }
  // Sends the result of a round to all workers.
  void Deliver(const Header& header, Shard& shard, std::shared_ptr<const Buffer> value, Time now);

  std::shared_ptr<PartyPolicy> policy_;
  // By global server, if updates happen here.
  std::map<NodeId, std::optional<OptimizerSpec>> optimizers_;
  FlatMap<ShardId, Shard, ShardHash> shards_;
  std::uint32_t rejoined_ = 0;  // how often; marks requests and their answers
  std::optional<Round> begun_;  // where it continues since the last return, by its first value
  bool apart_ = false;  // no worker takes part: other parties continue without this one
  std::set<NodeId> undecided_;  // global servers that have not said yet from which round on it takes part again
  Round first_ = 0;             // the latest round that the others have said
  Round told_ = 0;  // the barrier that the global servers have been told of
  // What CanPush is about: shards by worker, of which those at the end may have been answered. No journal has it:
  // a local server keeps one only where all wait for lost members.
  mutable std::map<NodeId, std::vector<ShardId>> lacks_;
  // By worker, the numbers of its pushes to closed rounds whose answers are due, of all shards.
  std::map<NodeId, std::multiset<Round>> awaits_;
  bool waits_longer_ = false;  // one of these came that is earlier than all others of the worker
};

}  // namespace geomx
