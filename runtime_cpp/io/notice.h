// Lines for the user about what happens to a node, which its log holds and launchers show.
//
//   geomx: 2026-11-26T04:20:00.123Z warning: east/server waits for east/worker1: nothing heard for 5000 ms
//
// After WriteJson(true) they are JSON instead, with time, node, level and text. Python writes the same lines
// (geomx/terminal/log.py).
#pragma once

#include <chrono>
#include <string>

namespace geomx::io {

enum class Severity { kInfo, kWarning };

// Writes a line to standard error at once, so that lines of several threads stay whole.
void Notice(Severity severity, const std::string& node, const std::string& text);
// The line of a moment, with its end.
std::string NoticeLine(bool json, std::chrono::system_clock::time_point at, Severity severity,
                       const std::string& node, const std::string& text);
// Chooses the form of all later lines of this process.
void WriteJson(bool json);
// Redirects notices to this descriptor.
void SendNotices(int descriptor);

}  // namespace geomx::io
