// Package chart draws the pictures of a benchmark as SVG, on a light ground that is part of the picture, so that it is
// legible on pages of any colour.
package chart

import (
	"bytes"
	"fmt"
	"image/color"
	"io"
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Chart is a picture.
type Chart struct {
	Title  string
	X, Y   string // the axes, with their units
	Height vg.Length
	draw   func(p *plot.Plot) error
}

// Range is a row of Ranges: a line from the low to the high figure, with a point at the middle.
type Range struct {
	Name           string
	Low, Mid, High float64
	Strong         bool // set off from the others
}

// Series are the values of one contender, beside each other in Bars and connected in Lines.
type Series struct {
	Name   string
	X      []float64 // of Lines
	Values []float64 // NaN for none
	Muted  bool      // what the others are compared with
}

// palette gives each series its colour.
func palette(series []Series) (all []color.Color) {
	next := 0
	for _, s := range series {
		if s.Muted {
			all = append(all, grey)
			continue
		}
		all = append(all, colours[next%len(colours)])
		next++
	}
	return all
}

// colours are told apart by readers with any colour vision, on white (Okabe and Ito).
var colours = []color.Color{
	color.RGBA{0, 114, 178, 255}, color.RGBA{213, 94, 0, 255}, color.RGBA{0, 158, 115, 255},
	color.RGBA{204, 121, 167, 255},
	color.RGBA{86, 180, 233, 255}, color.RGBA{230, 159, 0, 255}, color.RGBA{0, 0, 0, 255},
}

var grey = color.RGBA{110, 110, 110, 255}

var sans = font.Font{Typeface: "Liberation", Variant: "Sans", Size: vg.Points(11)}

var pale = color.RGBA{225, 225, 225, 255}

const (
	width = 20 * vg.Centimeter
	tall  = 10 * vg.Centimeter
	// row is the height of a row of Ranges.
	row = 0.8 * vg.Centimeter
)

// Ranges draws a row for each range, from the top, over a logarithmic axis.
func Ranges(title, x string, ranges []Range) Chart {
	c := Chart{Title: title, X: x, Height: 3*vg.Centimeter + row*vg.Length(len(ranges))}
	c.draw = func(p *plot.Plot) error {
		grid := plotter.NewGrid()
		grid.Vertical.Color, grid.Horizontal.Color = pale, nil
		p.Add(grid)
		var names []string
		lowest, highest := math.Inf(1), 0.0
		for i, r := range slices.Backward(ranges) {
			names = append(names, r.Name)
			at := float64(len(ranges) - 1 - i)
			var colour color.Color = grey
			if r.Strong {
				colour = colours[0]
			}
			line, err := plotter.NewLine(plotter.XYs{{X: r.Low, Y: at}, {X: r.High, Y: at}})
			if err != nil {
				return err
			}
			line.Color, line.Width = colour, vg.Points(4)
			points, err := plotter.NewScatter(plotter.XYs{{X: r.Mid, Y: at}})
			if err != nil {
				return err
			}
			points.GlyphStyle = draw.GlyphStyle{Color: colour, Radius: vg.Points(6), Shape: draw.CircleGlyph{}}
			labels, err := plotter.NewLabels(plotter.XYLabels{XYs: plotter.XYs{{X: r.High, Y: at}},
				Labels: []string{r.figures()}})
			if err != nil {
				return err
			}
			labels.Offset = vg.Point{X: vg.Points(9)}
			labels.TextStyle[0].Font, labels.TextStyle[0].YAlign = sans, draw.YCenter
			p.Add(line, points, labels)
			lowest, highest = min(lowest, r.Low), max(highest, r.High)
		}
		p.NominalY(names...)
		p.X.Min, p.X.Max = lowest/1.3, highest*1.3
		// The figures stand to the right of the longest line.
		p.X.Max *= math.Pow(p.X.Max/p.X.Min, 0.2)
		p.Y.Min, p.Y.Max = -0.6, float64(len(ranges))-0.4
		p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.TickerFunc(decades)
		return nil
	}
	return c
}

// figures are the middle and the high figure.
func (r Range) figures() string {
	if r.High == r.Mid {
		return number(r.Mid)
	}
	return number(r.Mid) + " … " + number(r.High)
}

// decades are ticks at powers of ten, and at 2 and 5 times them, which have labels where there are few powers.
func decades(low, high float64) (ticks []plot.Tick) {
	const few = 2
	for power := math.Floor(math.Log10(low)); power <= math.Log10(high); power++ {
		for _, digit := range []float64{1, 2, 5} {
			v := digit * math.Pow(10, power)
			if v < low || v > high {
				continue
			}
			tick := plot.Tick{Value: v}
			if digit == 1 || math.Log10(high/low) < few {
				tick.Label = number(v)
			}
			ticks = append(ticks, tick)
		}
	}
	return ticks
}

// Bars draws a group of bars for each category, with the figure above each bar.
func Bars(title, y string, categories []string, series []Series) Chart {
	c := Chart{Title: title, Y: y, Height: tall}
	c.draw = func(p *plot.Plot) error {
		grid := plotter.NewGrid()
		grid.Vertical.Color, grid.Horizontal.Color = nil, pale
		p.Add(grid)
		wide := vg.Length(0.75) * (width - 3*vg.Centimeter) / vg.Length(max(len(categories), 1)*max(len(series), 1))
		wide = min(wide, 1.2*vg.Centimeter)
		highest := 0.0
		for i, s := range series {
			offset := wide * (vg.Length(i) - vg.Length(len(series)-1)/2)
			values := make(plotter.Values, len(s.Values))
			var above plotter.XYLabels
			for at, v := range s.Values {
				if math.IsNaN(v) {
					continue
				}
				values[at], highest = v, max(highest, v)
				above.XYs = append(above.XYs, plotter.XY{X: float64(at), Y: v})
				above.Labels = append(above.Labels, number(v))
			}
			bars, err := plotter.NewBarChart(values, wide)
			if err != nil {
				return err
			}
			bars.Color, bars.Offset, bars.LineStyle.Width = palette(series)[i], offset, 0
			labels, err := plotter.NewLabels(above)
			if err != nil {
				return err
			}
			labels.Offset = vg.Point{X: offset, Y: vg.Points(3)}
			for j := range labels.TextStyle {
				labels.TextStyle[j].Font, labels.TextStyle[j].XAlign = sans, draw.XCenter
				labels.TextStyle[j].Font.Size = vg.Points(9)
			}
			p.Add(bars, labels)
			p.Legend.Add(s.Name, bars)
		}
		p.NominalX(categories...)
		p.X.Min, p.X.Max = -0.5, float64(len(categories))-0.5
		p.Y.Min, p.Y.Max = 0, highest*room(series)
		return nil
	}
	return c
}

// Lines connects the points of each series. With log, the axis of X is logarithmic and has a tick at each point.
func Lines(title, x, y string, log bool, series []Series) Chart {
	c := Chart{Title: title, X: x, Y: y, Height: tall}
	c.draw = func(p *plot.Plot) error {
		grid := plotter.NewGrid()
		grid.Vertical.Color, grid.Horizontal.Color = pale, pale
		p.Add(grid)
		var ticks []plot.Tick
		highest := 0.0
		for i, s := range series {
			var points plotter.XYs
			for j, v := range s.Values {
				if math.IsNaN(v) {
					continue
				}
				points, highest = append(points, plotter.XY{X: s.X[j], Y: v}), max(highest, v)
				if tick := (plot.Tick{Value: s.X[j], Label: number(s.X[j])}); !slices.Contains(ticks, tick) {
					ticks = append(ticks, tick)
				}
			}
			if len(points) == 0 {
				return fmt.Errorf("%s has no points", s.Name)
			}
			line, dots, err := plotter.NewLinePoints(points)
			if err != nil {
				return fmt.Errorf("%s: %w", s.Name, err)
			}
			colour := palette(series)[i]
			line.Color, line.Width = colour, vg.Points(2)
			dots.GlyphStyle = draw.GlyphStyle{Color: colour, Radius: vg.Points(3), Shape: shapes[i%len(shapes)]}
			if len(points) > 20 {
				dots.Radius = 0
			}
			p.Add(line, dots)
			p.Legend.Add(s.Name, line, dots)
		}
		p.Y.Min, p.Y.Max = 0, highest*room(series)
		if log {
			p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.ConstantTicks(ticks)
		}
		return nil
	}
	return c
}

// room is how much higher the axis is than the highest figure, so that the legend covers none.
func room(series []Series) float64 { return 1.1 + 0.09*float64(len(series)) }

var shapes = []draw.GlyphDrawer{draw.CircleGlyph{}, draw.BoxGlyph{}, draw.PyramidGlyph{}, draw.RingGlyph{},
	draw.SquareGlyph{}, draw.TriangleGlyph{}, draw.CrossGlyph{}, draw.PlusGlyph{}}

// number writes a figure with at most three digits.
func number(f float64) string {
	if f >= 100 {
		return strconv.FormatFloat(math.Round(f), 'f', -1, 64)
	}
	return strconv.FormatFloat(f, 'g', 3, 64)
}

// Write writes the picture as SVG.
func (c Chart) Write(w io.Writer) error {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = c.Title, c.X, c.Y
	p.Title.Padding = vg.Points(8)
	for _, style := range []*draw.TextStyle{&p.Title.TextStyle, &p.X.Label.TextStyle, &p.Y.Label.TextStyle,
		&p.X.Tick.Label, &p.Y.Tick.Label, &p.Legend.TextStyle} {
		style.Font = sans
	}
	p.Title.TextStyle.Font.Size = vg.Points(13)
	p.Legend.Padding, p.Legend.ThumbnailWidth = vg.Points(3), vg.Points(24)
	p.Legend.Top, p.Legend.Left = true, true
	if err := c.draw(p); err != nil {
		return fmt.Errorf("drawing %q: %w", c.Title, err)
	}
	canvas := vgsvg.New(width, c.Height)
	whole := draw.New(canvas)
	whole.SetColor(color.White)
	whole.Fill(whole.Rectangle.Path())
	p.Draw(draw.Crop(whole, vg.Points(8), -vg.Points(12), vg.Points(8), -vg.Points(8)))
	var svg bytes.Buffer
	if _, err := canvas.WriteTo(&svg); err != nil {
		return err
	}
	// A browser without this font takes one without serifs, too.
	_, err := w.Write(bytes.ReplaceAll(svg.Bytes(), []byte("font-family:Liberation Sans;"),
		[]byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif;")))
	return err
}
