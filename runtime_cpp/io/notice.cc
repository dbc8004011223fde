#include "io/notice.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <ctime>
#include <string_view>

namespace geomx::io {
namespace {

std::atomic<int> notices_to = STDERR_FILENO;
std::atomic<bool> as_json = false;

// A text in quotes (RFC 8259).
std::string Quoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char letter : text) {
    if (letter == '"' || letter == '\\') {
      quoted += '\\';
      quoted += letter;
    } else if (static_cast<unsigned char>(letter) < 0x20) {
      std::array<char, 8> code{};
      std::snprintf(code.data(), code.size(), "\\u%04x", static_cast<unsigned>(letter));
      quoted += code.data();
    } else {
      quoted += letter;
    }
  }
  return quoted + '"';
}

// In UTC, by ISO 8601.
std::string Stamp(std::chrono::system_clock::time_point at) {
  const auto millis = std::chrono::floor<std::chrono::milliseconds>(at.time_since_epoch()).count();
  const std::time_t seconds = static_cast<std::time_t>(millis / 1000);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", parts.tm_year + 1900,
                parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec,
                static_cast<int>(millis % 1000));
  return text.data();
}

}  // namespace

std::string NoticeLine(bool json, std::chrono::system_clock::time_point at, Severity severity,
                       const std::string& node, const std::string& text) {
  const std::string level = severity == Severity::kInfo ? "info" : "warning";
  if (!json) return "geomx: " + Stamp(at) + " " + level + ": " + text + "\n";
  return "{\"time\": " + Quoted(Stamp(at)) + ", \"node\": " + Quoted(node) + ", \"level\": " + Quoted(level) +
         ", \"text\": " + Quoted(text) + "}\n";
}

void Notice(Severity severity, const std::string& node, const std::string& text) {
  const std::string line = NoticeLine(as_json.load(), std::chrono::system_clock::now(), severity, node, text);
  (void)!write(notices_to.load(), line.data(), line.size());
}

void WriteJson(bool json) { as_json = json; }

void SendNotices(int descriptor) { notices_to = descriptor; }

}  // namespace geomx::io
