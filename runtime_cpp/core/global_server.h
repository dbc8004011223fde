// A global server: sums what the parties push, lets the optimizer (if one was set) turn the sum into
// new weights, and answers every party with the result. Without common rounds (GlobalRounds), every
// party's push is applied and answered by itself (own_rounds.cc); with a round policy, common rounds close
// without parties that are late (early_rounds.cc); where updates happen at the parties, the answer is
// the sum.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/server_role.h"

namespace geomx {

class GlobalServer final : public ServerRole {
 public:
  explicit GlobalServer(Node& node) : ServerRole(node), rules_(node.config().rounds) {}

  void OnValue(NodeId peer, const Header& header, Buffer value, Time now) override;
  void OnControl(NodeId peer, const Message& message, Time now) override;
  bool IsTold(const Header& header) const override {
    return header.kind != Kind::kPush || rules_.update_at_party || optimizer_.has_value();
  }
  std::string Objection(NodeId from, const Header& header) const override;
  void OnMember(NodeId member, bool back, Time now) override;
  void OnStop(Time now) override;
  void ListWaits(Waits& waits) const override;
  void Exchange(Archive& archive) override;
  std::vector<SavedShard> Saved() const override;
  std::size_t ShardsWithRounds() const override;
  void Describe(Digest& digest) const override;
  const Buffer* Value(Key key, std::uint32_t shard) const;

 private:
  // A party's state without common rounds.
  struct Progress {
    Round round = 0;         // of its last applied push
    std::uint64_t seen = 0;  // updates that its last answer included
    bool caught_up = false;  // it has been given the value since it came back, if it did
    std::optional<std::pair<Header, Buffer>> held;  // too far ahead to be applied yet

    void Exchange(Archive& archive) { archive(round, seen, caught_up, held); }
  };
  struct Shard : SummedShard {
    using SummedShard::SummedShard;
    std::uint64_t updates = 0;
    std::map<NodeId, Progress> parties;

    void Exchange(Archive& archive) { archive(updates, parties); }
  };
  const ShardTerms* Terms(const Header& header) const;
  Shard& shard(const Header& header);
  void Initialise(const Header& header, Shard& shard, Buffer value, Time now);

  // ---- parties that are lost and come back ----

  void Welcome(NodeId party);
  // The party says how many of its workers take part: none, or some again.
  void OnWorkers(NodeId party, const Header& header, Time now);
  // Closes rounds that waited only for parties that are lost.
  void CloseWithout(Time now);
  void Recheck(Key key, Shard& shard, Time now);
  Round NextRound() const;
  // Sends the value, with the round to continue from, to parties that have come back and may have
  // it now.
  void AnswerWaiting(Shard& shard, Time now);
  // The same where shards are pushed less often than others.
  void AnswerSeldom(Time now) {
    AdmitToSeldom(shards_, agreeing_, [=, this](Shard& shard) { AnswerWaiting(shard, now); });
  }
  // Without common rounds, a party that comes back must not hold up the others: it continues at the
  // round of the slowest of them.
  Round CatchUp(NodeId child, Shard& shard);
  void Request(NodeId peer, const Header& header, Shard& shard, Time now);
  void Instruct(NodeId peer, const Header& header, const std::string& text);
  // Sets the optimizer, without a state. Where parties update, they get the instruction too.
  void Obey(const std::string& text);

  // ---- common rounds ----

  void Push(NodeId peer, Header header, Shard& shard, Buffer value, Time now);
  void Close(Header header, Shard& shard, Time now);
  void PushEarly(NodeId peer, Header header, Shard& shard, Buffer value, Time now);
  void CloseOpen(SummedShard& shard, Time now) override { Close(shard.given, static_cast<Shard&>(shard), now); }
  bool WillPush(NodeId child, const SummedShard& shard) const override {
    return ServerRole::WillPush(child, shard) && !WaitsAtBarrierFor(child, shard.early->due);
  }
  SummedShard& Find(const ShardId& id) override { return *shards_.Find(id); }

  // ---- rounds of each party's own ----

  void Apply(NodeId peer, const Header& header, Shard& shard, Buffer encoded, Time now);
  // Applies held pushes that are not too far ahead: visits all parties from `first` on, and repeats
  // while any push was applied, as that may admit others. `progress`: this pass has applied one.
  void ApplyHeld(Key key, Shard& shard, NodeId first, bool progress, Time now);
  // Returns true if a party counts for the staleness bound of the others. One that has come back does when it
  // has been given the shard's value: until then its round is that in which it was lost.
  bool Counts(NodeId id, const Progress& party) const {
    return !node_.config().continues || (Present(id) && (!HasComeBack(id) || party.caught_up));
  }

  bool TooFarAhead(const Shard& shard, const Progress& party) const;
  // Applies a held push and answers it. Returns false if a device is working on it; ApplyHeld
  // continues after that.
  bool ApplyNow(NodeId peer, Key key, Shard& shard, Progress& party, Time now);
  // Parties that are held back wait for the slowest.
  void AddWaitsOfTheFast(Key key, const Shard& shard, Waits& waits) const;

  // ---- both ----

  // Reports a loss if a round, or a party that is held back, waits for a party that has left.
  void CheckParties(Key key, const Shard& shard);
  void Finish(const Header& header, Round round, std::uint32_t merge_count,
              const std::shared_ptr<const Buffer>& answer, std::span<const NodeId> targets,
              Time now);

  const GlobalRounds rules_;
  FlatMap<ShardId, Shard, ShardHash> shards_;
  std::optional<OptimizerSpec> optimizer_;
  bool obeys_ = false;  // an instruction was given
  // Parties that have come back and agree with other global servers on their first round. A tensor may have shards at
  // several of these, after different rounds.
  std::set<NodeId> agreeing_;
};

}  // namespace geomx
