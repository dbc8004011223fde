// The driver's part in snapshots, which replace journals that have become long. See core/snapshot.h.
#include <algorithm>
#include <utility>

#include "io/driver.h"

namespace geomx::io {

// A snapshot is written when no device is at work; while the run goes wrong, or ends, none is needed.
void Driver::CutJournal(const std::vector<std::string>& state) {
  if (journal_->cutting()) {
    const std::string why = journal_->TryFinishCut();
    if (!why.empty()) Tell(Severity::kWarning, name_ + " goes on with its long journal: " + why);
    return;
  }
  if (!journal_->long_enough() || !node_->node().Resting() || status_.failure() || closing_) return;
  OutsideNode outside;
  std::vector<const Delayed*> delayed;
  for (const Delayed& each : delayed_) delayed.push_back(&each);
  std::sort(delayed.begin(), delayed.end(),
            [](const Delayed* one, const Delayed* other) { return one->order < other->order; });
  for (const Delayed* each : delayed) {
    if (each->message.header.kind == Kind::kHeartbeat) continue;
    outside.held.push_back({each->from, each->at, each->message});
  }
  if (shaper_) {
    shaper_->EachUnderWay([&](NodeId peer, Lane lane, const Message& message) {
      outside.under_way.push_back({peer, lane, message});
    });
  }
  outside.restarts = restarts_;
  outside.exchange = [this, &state](Archive& archive) {
    ExchangeOutside(archive);
    auto texts = notes_, parts = state;
    archive(texts, parts);
  };
  node_->Commit();
  try {
    node_->Snapshot(journal_->BeginCut(), outside, Now());
    journal_->SyncCut();
  } catch (const StateError& error) {
    journal_->GiveUpCutting();
    Tell(Severity::kWarning, name_ + " keeps its whole journal: " + error.what());
  } catch (const JournalError& error) {
    journal_->PutOffCut();
    Tell(Severity::kWarning, name_ + " goes on with its long journal: " + error.what());
  }
}

// What a replay's handler learns from records.
void Driver::ExchangeOutside(Archive& archive) {
  archive.Name("links");
  for (const Peer& peer : node_->config().peers) {
    PeerLink& link = sessions_.LinkOf(peer.id);
    link.frames.Exchange(archive);
    archive(link.made, link.closed, link.lost_why, outlets_[peer.id].counts);
    if (archive.loading()) link.recorded = link.frames.acknowledged();
  }
  archive(incarnations_, counted_, ready_, started_, lost_messages_);
  archive.Name("application");
}

void Driver::OnSnapshot(Archive& archive) {
  ExchangeOutside(archive);
  if (started_) {
    WatchLinks(true);
    if (shaper_) shaper_->SetOrigin(*started_);
    status_.SetStarted(*started_);
  }
  if (node_->stopped()) {
    WatchLinks(false);
    status_.SetStopped();
  }
  std::vector<std::string> texts, state;
  archive(texts, state);
  if (node_->config().role != Role::kWorker) return;
  if (!texts.empty()) {  // written right after the last of them
    resumed_.notes.assign(texts.begin(), texts.end() - 1);
    OnNote(std::move(texts.back()), std::move(state));
  }
  Worker& worker = node_->worker();
  status_.SetReleased(worker.released());
  for (const Key key : worker.Keys()) {
    if (worker.ValueRound(key) > 0 || !worker.Value(key).empty()) {
      status_.SetValue(key, worker.ValueRound(key), Now());
    }
  }
}

// A worker's application continues from its latest note only, so a snapshot is written right after one.
void Driver::Note(const std::string& text, const std::vector<std::string>& state) {
  node().Note(text, state);
  if (!journal_) return;
  notes_.push_back(text);
  CutJournal(state);
}

}  // namespace geomx::io
