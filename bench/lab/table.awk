# Records of `gradwire sweep` at one rate -> a table on standard output, and lab records appended to the file `lab`.
# Exit status 1: a check failed (bytes that disagree, wrong elements, a link that is faster than it says, a method that
# did not run). Every record is one flat JSON object without spaces; reading those takes no more than this.
function text(key) {
  if (!match($0, "\"" key "\":\"[^\"]*\"")) return ""
  return substr($0, RSTART + length(key) + 4, RLENGTH - length(key) - 5)
}
function number(key) {
  if (!match($0, "\"" key "\":[-+.0-9e]+")) return -1
  return substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 3) + 0
}
function fail(what) {
  print "  FAILED: " what
  failed = 1
}
# tc's rate in bits a second; 0 for a link that is not shaped, -1 for units that this does not know.
function bits_of(rate) {
  if (rate == "unshaped") return 0
  if (rate !~ /^[0-9.]+[kmg]?bit$/) return -1
  return (rate + 0) * (rate ~ /kbit/ ? 1e3 : rate ~ /mbit/ ? 1e6 : rate ~ /gbit/ ? 1e9 : 1)
}
# The speedup over dense that a method is meant to reach where the link is what bounds dense; 0: none is stated.
function target_of(spec) {
  if (bits != 1e9) return 0
  return spec ~ /^onebit/ ? 10 : spec ~ /^quant\(bits=4\)/ ? 6 : 0
}

BEGIN {
  bits = bits_of(rate)
  tolerance = 0.05
}

$0 !~ /"event":"case"/ {
  fail(text("spec") " did not run: " text("reason"))
  next
}

# The baseline always comes first.
text("spec") == "none" {
  dense_us = number("time_us")
  used = bits > 0 ? number("interface_bytes") * 8 / (dense_us * 1e-6) / bits : 0
  printf "\n%s: dense (Gloo's f32 all-reduce) %.1f ms", rate, dense_us / 1e3
  if (bits > 0) printf ", payload at %.0f %% of the rate", 100 * used
  printf "\n  %-27s %-9s %10s %9s %8s %-10s %12s %12s %8s\n", "spec", "by", "time ms", "p99 ms", "speedup", "target", \
    "wire bytes", "interface", "differ"
}

{
  spec = text("spec")
  us = number("time_us")
  wire = number("wire_bytes")
  sent = number("interface_bytes")
  speedup = dense_us / us
  target = target_of(spec)
  # A dense run that something else held up would flatter every method.
  verdict = target == 0 ? "" : target "x " (used < 0.9 ? "unjudged" : speedup >= target ? "pass" : "missed")
  printf "  %-27s %-9s %10.2f %9.2f %7.2fx %-10s %12d %12d %+7.2f%%\n", spec, text("reduction"), us / 1e3, \
    number("p99_us") / 1e3, speedup, verdict, wire, sent, 100 * (sent / wire - 1)
  if (sent < wire * (1 - tolerance) || sent > wire * (1 + tolerance)) {
    fail("the interface sent " sent " bytes a call, the library counted " wire ": more than 5 % apart")
  }
  if (number("wrong") != 0) fail(number("wrong") " wrong elements")
  printf "{\"event\":\"lab\",\"rate\":\"%s\",\"ranks\":%d,\"bytes\":%d,\"spec\":\"%s\",\"reduction\":\"%s\"," \
    "\"time_ms\":%.3f,\"p99_ms\":%.3f,\"dense_ms\":%.3f,\"speedup\":%.3f,\"wire_bytes\":%d,\"interface_bytes\":%d," \
    "\"iterations\":%d,\"wrong\":%d}\n", rate, number("ranks"), number("bytes"), spec, text("reduction"), us / 1e3, \
    number("p99_us") / 1e3, dense_us / 1e3, speedup, wire, sent, number("iterations"), number("wrong") >>lab
}

END {
  if (!dense_us) fail("nothing was measured at " rate)
  if (used > 1.02) fail("more bits went over the link than its rate lets through: it was not shaped")
  if (bits > 0 && used < 0.9) print "  dense did not fill the link, which flatters every speedup: targets are not judged; is the machine busy?"
  exit failed
}
