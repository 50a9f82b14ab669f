# Completion of the plugins of oc and kubectl, and of these two by themselves, for PowerShell.
$__oc_disconnected = {
  param($wordToComplete, $commandAst, $cursorPosition)
  $words = @($commandAst.CommandElements | Where-Object { $_.Extent.StartOffset -lt $cursorPosition } | ForEach-Object { $_.ToString() })
  if ($wordToComplete -eq '') { $words += '' }
  $program = $words[0]
  $typed = @($words | Select-Object -Skip 1)
  if (((Split-Path -Leaf $program) -replace '\.exe$') -in 'oc', 'kubectl' -and $typed.Count -gt 1 -and $typed[0] -in @names@) {
    $name = $typed[0] -replace '-', '_'
    $program = (Get-Command "oc-$name", "kubectl-$name" -ErrorAction SilentlyContinue | Select-Object -First 1).Source
    $typed = @($typed | Select-Object -Skip 1)
  }
  if (-not $program) { return }
  $prefix = if ($wordToComplete -match '^(--[^=]+=)') { $Matches[1] } else { '' }
  # An empty argument is two quotes in PowerShell before 7.3.
  $arguments = if ($PSVersionTable.PSVersion -lt [version]'7.3') { $typed | ForEach-Object { if ($_ -eq '') { '""' } else { $_ } } } else { $typed }
  & $program __complete @arguments 2>$null | Where-Object { $_ -notmatch '^(:\d+$|$)' } | ForEach-Object {
    $word, $text = $_ -split "`t", 2
    $shown = if ($text) { $text } else { $word }
    [System.Management.Automation.CompletionResult]::new("$prefix$word", $word, 'ParameterValue', $shown)
  }
}
Register-ArgumentCompleter -Native -CommandName @executables@ -ScriptBlock $__oc_disconnected
